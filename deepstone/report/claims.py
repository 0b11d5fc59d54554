"""Formats a paper's claims for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import get_args

from deepstone.absent import Absent
from deepstone.report.figures.chart_data import unit_named
from deepstone.report.table import value_of
from deepstone.report.wording import SHOWN, value_words
from deepstone.results.claim import JudgedClaim, JudgedPaper, Verdict, VerdictWord


def verdict_counts(paper: JudgedPaper) -> list[tuple[str, int]]:
    """Count the claims with each verdict, in the order of the list."""
    found = Counter(claim.verdict for claim in paper.claims)
    return [(word, found[word]) for word in get_args(VerdictWord) if found[word]]


def measured_words(verdict: Verdict) -> str:
    """Format the measured number with its interval; empty if there is none."""
    measured = value_of(verdict.measured)
    return "" if isinstance(measured, Absent) else value_words(measured, SHOWN[unit_named(verdict.unit)])


def published_words(claim: JudgedClaim) -> str:
    return str(claim.published.get("text", ""))


def other_verdicts(claim: JudgedClaim) -> Sequence[Verdict]:
    """Return the verdicts of the other machines."""
    return [each for each in claim.by_machine if each.machine != claim.machine]


def how_judged(claim: JudgedClaim) -> list[tuple[str, str]]:
    """Return labels and texts: the test of a claim, its rule and its setup."""
    facts = (("tested by", claim.test), ("rule", claim.rule), ("setup", claim.setup))
    return [(label, words) for label, words in facts if words]
