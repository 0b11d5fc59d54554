"""A paper and what was measured, to a verdict for every claim, on each machine that can say something about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from deepstone.papers.answer import Answer, not_testable
from deepstone.papers.evidence import Evidence
from deepstone.papers.figures.builders import BUILDERS
from deepstone.papers.paper import Claim, Paper, RuleUse, Scale
from deepstone.papers.rules.rule import Asked
from deepstone.papers.rules.table import RULES

SCHEMA: Final = 1
COUNTED: Final = "none, counted"
NONE: Final = "none"
SEVERAL: Final = "several"
NOTHING_MEASURED: Final = "nothing that could test it was measured"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """One claim judged in one place."""

    claim: Claim
    machine: str
    kind: str  # of the device; "" where none is meant
    answer: Answer


def judged_paper(paper: Paper, evidence: Evidence, *, scale: Scale | None) -> dict[str, Any]:
    """The paper as JSON: its claims with verdicts, and its figures with what was measured beside what it published."""
    return {
        "schema": SCHEMA,
        "kind": "paper",
        "name": paper.name,
        "title": paper.title,
        "citation": paper.citation,
        "setup": paper.setup,
        "scale": scale or {"absent": "judged from what was there"},
        "errors": list(paper.errors),
        "claims": [claim_json(claim, judged_claim(claim, evidence)) for claim in paper.claims],
        "charts": charts(paper, evidence),
    }


def charts(paper: Paper, evidence: Evidence) -> list[dict[str, Any]]:
    """Figures without a single point of our own or the paper's are left out."""
    drawn = [BUILDERS[figure.builder](figure.parameters, evidence).to_json(figure) for figure in paper.figures]
    return [chart for chart in drawn if any(series["points"] for series in chart["series"])]


def judged_claim(claim: Claim, evidence: Evidence) -> list[Verdict]:
    """At least one; that of the machine the claim is about first, verdicts before what cannot be tested."""
    found: list[Verdict] = []
    scopes = {RULES[use.name].scope for use in claim.rules}
    if scopes & {"counted", "all"}:
        uses = [use for use in claim.rules if RULES[use.name].scope != "place"]
        answer = _first(claim, uses, evidence)
        where = (COUNTED if answer.is_verdict else NONE) if "counted" in scopes else SEVERAL
        found.append(Verdict(claim=claim, machine=where, kind="", answer=answer))
    if "place" in scopes:
        uses = [use for use in claim.rules if RULES[use.name].scope == "place"]
        found += [
            Verdict(claim=claim, machine=place.words, kind=place.kind, answer=_first(claim, uses, evidence.at(place)))
            for place in evidence.places
        ]
    if not found:
        found.append(Verdict(claim=claim, machine="", kind="", answer=not_testable(NOTHING_MEASURED)))
    return sorted(found, key=lambda verdict: (not verdict.answer.is_verdict, verdict.kind not in (claim.about, "")))


def claim_json(claim: Claim, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    first = verdicts[0]
    by_machine = [{"machine": verdict.machine, **verdict.answer.to_json()} for verdict in verdicts]
    return {
        "id": claim.id,
        "claim": claim.text,
        "published": dict(claim.published),
        "where": claim.where,
        "test": claim.test,
        "about": claim.about or {"absent": "no kind of device is meant"},
        "rule": rule_words(claim),
        "machine": first.machine,
        **first.answer.to_json(),
        "by_machine": by_machine if first.kind else [],
    }


def rule_words(claim: Claim) -> str:
    """How records become a verdict, in words; where several rules are tried, in their order."""
    words = [f"{use.name}: {RULES[use.name].words}" for use in claim.rules]
    return " Otherwise, ".join(words)


def _first(claim: Claim, uses: Sequence[RuleUse], evidence: Evidence) -> Answer:
    """Of the rules in order, the first that gives a verdict; else what the first of them lacks."""
    number = claim.published.get("value")
    answers: list[Answer] = []
    for use in uses:
        asked = Asked(parameters=use.parameters, published=None if number is None else float(number))
        answer = RULES[use.name].apply(asked, evidence)
        if answer.is_verdict:
            return answer.noting(use.remark)
        answers.append(answer)
    return answers[0]
