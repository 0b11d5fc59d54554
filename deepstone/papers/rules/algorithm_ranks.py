"""Which kind of convolution algorithm is fastest: over all passes, and on some layers at the smallest batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from deepstone.algorithms.problem import Pass
from deepstone.measure.statistics import Quantity
from deepstone.papers.answer import Answer, not_testable
from deepstone.papers.arithmetic import in_words, ratio
from deepstone.papers.evidence import Evidence
from deepstone.papers.families import (
    FAMILIES,
    LARGEST_ERROR,
    alike,
    family_of,
    fastest,
    passes_in_words,
    timed_cases,
    uniform,
)
from deepstone.papers.lab import Lab
from deepstone.papers.rules.labs import NO_LAB, lab_remarks, labs_by_batch
from deepstone.papers.rules.rule import Asked, Rule
from deepstone.papers.verdict import Judgement, of_parts, of_rank


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """One of the two orders: judged, or `lead` is None and `said` tells why not."""

    said: str
    lead: Quantity | None = None
    labs: tuple[Lab, ...] = ()

    @property
    def judged(self) -> list[Judgement]:
        return [] if self.lead is None else [of_rank(self.lead)]


def _apply(asked: Asked, evidence: Evidence) -> Answer:
    labs = labs_by_batch(asked, evidence)
    if not labs:
        return not_testable(NO_LAB)
    overall, small = _overall(asked, labs), _small(asked, labs[0])
    parts = [*overall.judged, *small.judged]
    leads = [part.lead for part in (overall, small) if part.lead is not None]
    if not leads:
        return not_testable(f"{overall.said}; {small.said}", setup=labs[-1].words)
    used = list({lab.batch: lab for lab in [*overall.labs, *small.labs]}.values())
    answer = Answer(
        word=of_parts(parts),
        why=f"{overall.said}; {small.said}",
        measured=leads[0],
        setup="; ".join(lab.words for lab in used),
        findings=tuple(dict.fromkeys(lab.id for lab in used)),
    )
    for lab in overall.labs[:1]:
        answer = answer.noting(_with_any_error(lab, asked.parameters["overall"]))
    return answer.noting(lab_remarks(asked, labs, used[0]))


def _overall(asked: Asked, labs: Sequence[Lab]) -> _Part:
    """For every batch means for the one that suits it least."""
    family = asked.parameters["overall"]
    leads = [(_lead(lab, family, _own_cases(lab, family)), lab) for lab in _as_in_paper(asked, labs)]
    known = [(lead, lab) for lead, lab in leads if lead is not None]
    if not known:
        return _Part(said=f"no library here was seen to run {family}")
    lead, lab = min(known, key=lambda entry: entry[0].median)
    passes = passes_in_words(_own_cases(lab, family))
    return _Part(
        said=f"over {passes} at batch {lab.batch}, {_compared(lead, family)}",
        lead=lead,
        labs=tuple(lab for _, lab in known),
    )


def _small(asked: Asked, smallest: Lab) -> _Part:
    family, layers = asked.parameters["small"], asked.parameters["small_layers"]
    lead = _lead(smallest, family, [(layer, "forward") for layer in layers if layer in smallest.layers])
    if lead is None:
        return _Part(said=f"no library here was seen to run {family} on {', '.join(layers)}")
    where = f"forward on {', '.join(layers)} at batch {smallest.batch}"
    return _Part(said=f"{where}, {_compared(lead, family)}", lead=lead, labs=(smallest,))


def _compared(lead: Quantity, family: str) -> str:
    return f"the fastest other takes {in_words(lead)} times as long as {family}: {of_rank(lead).why}"


def _as_in_paper(asked: Asked, labs: Sequence[Lab]) -> Sequence[Lab]:
    """Those at batches within the paper's range; where there are none, the one nearest to it."""
    least = min(asked.parameters["paper_batches"])
    return [lab for lab in labs if lab.batch >= least] or labs[-1:]


def _own_cases(lab: Lab, family: str) -> list[tuple[str, Pass]]:
    return [case for case in timed_cases(lab) if fastest(alike(lab.of(*case)), family) is not None]


def _lead(
    lab: Lab, family: str, cases: Sequence[tuple[str, Pass]], largest_error: float = LARGEST_ERROR
) -> Quantity | None:
    """Time of the fastest other kind over that of this one."""
    own = uniform(lab, family, cases, largest_error) if cases else None
    found = [uniform(lab, name, cases, largest_error) for name in FAMILIES if name != family]
    others = [kind.time_s for kind in found if kind is not None]
    if own is None or own.own < len(cases) or not others:
        return None
    return ratio(min(others, key=lambda time: time.median), own.time_s)


def _with_any_error(lab: Lab, family: str) -> str:
    """How it would be if an algorithm might compute less exactly: said, but not judged."""
    cases = _own_cases(lab, family)
    winners = [chosen for case in cases if (chosen := fastest(lab.of(*case))) is not None]
    loose = [timing for timing in winners if timing not in alike(winners)]
    lead = _lead(lab, family, cases, math.inf)
    if not loose or lead is None:
        return ""
    kinds = " and ".join(sorted({family_of(timing) for timing in loose}))
    return (
        f"if errors above {LARGEST_ERROR:.0e} were allowed, {kinds} would be the fastest in {len(loose)} of these "
        f"{len(winners)} passes more, and the fastest other would take {in_words(lead)} times as long as {family}"
    )


RULE = Rule(
    words=(
        "Two orders from the convolution lab. Time of the fastest other kind over that of `overall`, over all passes "
        "of a step that it can do, at the batch that suits it least; and the same for `small`, forward on some layers "
        "at the smallest batch. Only algorithms that compute alike are compared."
    ),
    parameters=("model", "paper_batches", "overall", "small", "small_layers"),
    scope="place",
    apply=_apply,
)
