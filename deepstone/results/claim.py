"""Conclusions: a paper's claims, with a verdict on every machine that has evidence, and statements with theirs."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from deepstone.absent import Absent
from deepstone.results.chart import Chart
from deepstone.results.parts import Json, Number, OrAbsent, Part, Table
from deepstone.results.quantity import Quantity

NO_RATIO: Final = Absent("the sentence is not about one ratio")

VerdictWord: TypeAlias = Literal["holds", "reversed", "weaker", "no longer matters", "undecided", "not testable here"]


class Verdict(Part, frozen=True, kw_only=True):
    """`why` is one sentence for a person. A verdict other than "not testable here" always has a quantity."""

    machine: str
    verdict: VerdictWord
    measured: OrAbsent[Quantity]
    unit: str
    setup: str
    why: str
    runs: list[str]
    findings: list[str]


class JudgedClaim(Verdict, frozen=True, kw_only=True):
    """The claim with its first verdict; `by_machine` has all of them."""

    id: str
    claim: str
    published: Table[Json]  # as in the paper's file: text; value, unit and bound if it is a number
    where: str
    test: str
    about: OrAbsent[str]
    rule: str
    by_machine: list[Verdict]


class JudgedPaper(Part, frozen=True, kw_only=True):
    """`errors`: where the paper itself is wrong."""

    schema: Literal[1]
    kind: Literal["paper"]
    name: str
    title: str
    citation: str
    setup: str
    scale: OrAbsent[str]
    errors: list[str]
    claims: list[JudgedClaim]
    charts: list[Chart]


class Statement(Part, frozen=True, kw_only=True):
    """One plain sentence about the measurements, with its evidence. `rank`: higher is more important. `how`: the
    meaning of its interval. `advice`: what to do, if that comes first."""

    text: str
    runs: list[str]
    findings: list[str]
    ratio: OrAbsent[Quantity]
    how: str
    rank: Number
    advice: str | None = None
