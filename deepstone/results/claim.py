"""A paper's claims, and the verdict on each claim on every machine that has evidence for it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from deepstone.results.chart import Chart
from deepstone.results.parts import Json, OrAbsent, Part, Table
from deepstone.results.quantity import Quantity

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
