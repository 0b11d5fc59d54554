"""What choosing the convolution algorithm can gain: the slowest kind everywhere, over the best for each pass."""

from __future__ import annotations

from deepstone.papers.answer import Answer, not_testable
from deepstone.papers.arithmetic import in_words, ratio
from deepstone.papers.evidence import Evidence
from deepstone.papers.families import FAMILIES, alike, best_mix, family_of, missing_cases, timed_cases, uniform
from deepstone.papers.rules.labs import NO_LAB, lab_remarks, labs_by_batch
from deepstone.papers.rules.rule import Asked, Rule
from deepstone.papers.verdict import of_ratio
from deepstone.units import seconds


def _apply(asked: Asked, evidence: Evidence) -> Answer:
    labs = labs_by_batch(asked, evidence)
    if not labs:
        return not_testable(NO_LAB)
    lab = labs[-1]
    cases = timed_cases(lab)
    kinds = [
        kind for family in FAMILIES if (kind := uniform(lab, family, cases)) is not None and 2 * kind.own >= len(cases)
    ]
    if not kinds or len({family_of(timing) for timing in alike(lab.timings)}) < 2:
        return not_testable("only one kind of algorithm was timed", setup=lab.words)
    slowest = max(kinds, key=lambda kind: kind.time_s.median)
    best = best_mix(lab, cases)
    gain = ratio(slowest.time_s, best)
    judged = of_ratio(gain, asked.number)
    listed = ", ".join(f"{kind.family} {seconds(kind.time_s.median)}" for kind in kinds)
    return Answer(
        word=judged.word,
        why=(
            f"all convolutions of a step with {slowest.family} take {in_words(gain)} times as long as with the best "
            f"for each ({listed}, best {seconds(best.median)}); {judged.why}"
        ),
        measured=gain,
        setup=lab.words,
        findings=(lab.id,),
    ).noting(lab_remarks(asked, labs, lab, missing_cases(lab)))


RULE = Rule(
    words=(
        "From the convolution lab, over all passes that a training step needs: the time of the slowest kind of "
        "algorithm that can do at least half of them (where it cannot, GEMM) over that of the fastest for each pass. "
        "Only algorithms that compute alike (relative error up to 1e-4, which keeps out TF32 and Winograd on 5x5) are "
        "compared."
    ),
    parameters=("model", "paper_batches"),
    scope="place",
    apply=_apply,
)
