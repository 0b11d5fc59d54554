"""Judges every claim of a paper by the evidence, on each machine that has evidence for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.papers.answer import Answer, not_testable
from deepstone.papers.evidence import Evidence
from deepstone.papers.paper import Claim, Paper, RuleUse, Scale
from deepstone.papers.verdict import UNDECIDED
from deepstone.results.chart import Chart
from deepstone.results.claim import JudgedClaim, JudgedPaper

COUNTED: Final = "none, counted"
NONE: Final = "none"
SEVERAL: Final = "several"
NOTHING_MEASURED: Final = "nothing that could test it was measured"


class PlaceVerdict(Struct, frozen=True, kw_only=True):
    """One claim judged in one place."""

    claim: Claim
    machine: str
    kind: str  # of the device; "" where none is meant
    answer: Answer


def judged_paper(paper: Paper, evidence: Evidence, *, scale: Scale | None) -> JudgedPaper:
    """Return the claims with verdicts, and the figures with measured and published numbers."""
    return JudgedPaper(
        schema=1,
        kind="paper",
        name=paper.name,
        title=paper.title,
        citation=paper.citation,
        setup=paper.setup,
        scale=scale or Absent("judged from what was there"),
        errors=list(paper.errors),
        claims=[claim_with(claim, judged_claim(claim, evidence)) for claim in paper.claims],
        charts=charts(paper, evidence),
    )


def charts(paper: Paper, evidence: Evidence) -> list[Chart]:
    """Return the charts of all figures that have at least one point, measured or published."""
    built = [figure.builder.chart(evidence).chart(figure) for figure in paper.figures]
    return [chart for chart in built if any(series.points for series in chart.series)]


def judged_claim(claim: Claim, evidence: Evidence) -> list[PlaceVerdict]:
    """Return at least one verdict. Order: the kind of device that the claim is about first, then decided before
    undecided verdicts, "not testable" last. Ties keep the order of places, which does not depend on files."""
    found: list[PlaceVerdict] = []
    scopes = {use.rule.scope for use in claim.rules}
    if scopes & {"counted", "all"}:
        uses = [use for use in claim.rules if use.rule.scope != "place"]
        answer = _first(claim, uses, evidence)
        where = (COUNTED if answer.is_verdict else NONE) if "counted" in scopes else SEVERAL
        found.append(PlaceVerdict(claim=claim, machine=where, kind="", answer=answer))
    if "place" in scopes:
        uses = [use for use in claim.rules if use.rule.scope == "place"]
        found += [
            PlaceVerdict(
                claim=claim, machine=place.name, kind=place.kind, answer=_first(claim, uses, evidence.at(place))
            )
            for place in evidence.places
        ]
    if not found:
        found.append(PlaceVerdict(claim=claim, machine="", kind="", answer=not_testable(NOTHING_MEASURED)))
    return sorted(
        found,
        key=lambda verdict: (
            not verdict.answer.is_verdict,
            verdict.kind not in (claim.about, ""),
            verdict.answer.word == UNDECIDED,
        ),
    )


def claim_with(claim: Claim, verdicts: Sequence[PlaceVerdict]) -> JudgedClaim:
    """Return the claim with its first verdict, and with all verdicts if it was judged on machines."""
    first = verdicts[0]
    by_machine = [verdict.answer.on(verdict.machine) for verdict in verdicts]
    return JudgedClaim.like(
        by_machine[0],
        id=claim.id,
        claim=claim.text,
        published=claim.published.to_json(),
        where=claim.where,
        test=claim.test,
        about=claim.about or Absent("no kind of device is meant"),
        rule=rule_words(claim),
        by_machine=by_machine if first.kind else [],
    )


def rule_words(claim: Claim) -> str:
    """Describe how records become a verdict; several rules in the order in which they are tried."""
    words = [f"{use.name}: {use.rule.words}" for use in claim.rules]
    joined = words[:1]
    for use, each in zip(claim.rules[1:], words[1:], strict=True):
        joined += [" Beside it, " if use.beside else " Otherwise, ", each]
    return "".join(joined)


def _first(claim: Claim, uses: Sequence[RuleUse], evidence: Evidence) -> Answer:
    """Return the first decided verdict of the rules that apply, with the others as remarks; else the first answer."""
    answers: list[tuple[RuleUse, Answer]] = []
    for use in uses:
        if use.beside or not any(answer.is_verdict for _, answer in answers):
            answers.append((use, use.rule.answer(claim.published, evidence)))
    verdicts = [(use, answer.noting(use.remark)) for use, answer in answers if answer.is_verdict]
    if not verdicts:
        return answers[0][1]
    chosen = next((each for each in verdicts if each[1].word != UNDECIDED), verdicts[0])
    use, answer = chosen
    answer = replace(answer, why=f"{use.label}: {answer.why}") if use.label else answer
    for other in verdicts:
        if other is not chosen:
            answer = answer.with_other_test(other[0].label or other[0].name, other[1])
    return answer
