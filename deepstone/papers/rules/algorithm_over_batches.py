"""Where a kind of algorithm is slow, and whether it loses more than another one does when the batch shrinks."""

from __future__ import annotations

from deepstone.algorithms.problem import Pass
from deepstone.measure.statistics import Quantity
from deepstone.papers.answer import Answer, not_testable
from deepstone.papers.arithmetic import in_words, ratio
from deepstone.papers.evidence import Evidence
from deepstone.papers.families import alike, family_of, fastest, timed_cases, uniform
from deepstone.papers.lab import Lab
from deepstone.papers.rules.labs import NO_LAB, lab_remarks, labs_by_batch
from deepstone.papers.rules.rule import Asked, Rule
from deepstone.papers.verdict import Judgement, of_parts, of_rank


def _apply(asked: Asked, evidence: Evidence) -> Answer:
    labs = labs_by_batch(asked, evidence)
    if not labs:
        return not_testable(NO_LAB)
    family, other, layer = (asked.parameters[key] for key in ("family", "other", "layer"))
    largest = labs[-1]
    slower = _slower(largest, family, layer, asked.parameters["direction"])
    if slower is None:
        refused = "; ".join(f"{name}: {why}" for name, why in largest.refused.items() if name.lower() == family)
        return not_testable(
            f"no library here was seen to run {family} convolution{refused and f' ({refused})'}",
            setup=largest.words,
        )
    parts: list[Judgement] = [of_rank(slower)]
    said = [
        f"{layer}'s {asked.parameters['direction']} gradient takes {in_words(slower)} times as long with {family} as "
        f"with the fastest other at batch {largest.batch}: {parts[0].why}"
    ]
    lost = _lost(labs, family, other)
    if lost is None:
        said.append("its scaling needs two batches")
    else:
        parts.append(of_rank(lost))
        said.append(
            f"from batch {largest.batch} to {labs[0].batch} its time per image grows {in_words(lost)} times as much as "
            f"that of {other}: {parts[1].why}"
        )
    return Answer(
        word=of_parts(parts),
        why="; ".join(said),
        measured=slower,
        setup="; ".join(dict.fromkeys([labs[0].words, largest.words])),
        findings=tuple(dict.fromkeys([labs[0].id, largest.id])),
    ).noting(lab_remarks(asked, labs, largest))


def _slower(lab: Lab, family: str, layer: str, direction: Pass) -> Quantity | None:
    timings = alike(lab.of(layer, direction))
    own = fastest(timings, family)
    others = fastest([timing for timing in timings if family_of(timing) != family])
    return None if own is None or others is None else ratio(own.time_s, others.time_s)


def _lost(labs: list[Lab], family: str, other: str) -> Quantity | None:
    """How much more of its speed per image the family loses towards the smallest batch than the other one does."""
    if len(labs) < 2:
        return None
    small, large = labs[0], labs[-1]
    common = [case for case in timed_cases(small) if case in timed_cases(large)]
    sums = [uniform(lab, kind, common) for kind in (family, other) for lab in (small, large)]
    if any(found is None for found in sums):
        return None
    own_small, own_large, other_small, other_large = (found.time_s for found in sums if found is not None)
    return ratio(ratio(own_small, own_large), ratio(other_small, other_large))


RULE = Rule(
    words=(
        "From the convolution lab: the first convolution's gradient with this kind of algorithm over the fastest "
        "other, at the largest batch; and how much more its time per image grows towards the smallest than GEMM's."
    ),
    parameters=("model", "paper_batches", "family", "other", "layer", "direction"),
    scope="place",
    apply=_apply,
)
