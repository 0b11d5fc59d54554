"""A paper's claims and what became of them, from the JSON of `deepstone papers`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from deepstone.absent import Absent
from deepstone.records.shape import refuse
from deepstone.report.amounts import SHOWN
from deepstone.report.chart_data import unit_named
from deepstone.report.figures.numbers import value_cell
from deepstone.report.reading import Node

VERDICTS: Final = ("holds", "weaker", "reversed", "no longer matters", "undecided", "not testable here")


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """A claim on one machine."""

    machine: str
    verdict: str
    measured: str
    why: str
    runs: tuple[str, ...]
    findings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """`rest` are labels and words: how it is tested, by which rule, in which setup."""

    id: str
    claim: str
    published: str
    where: str
    judgement: Judgement
    others: tuple[Judgement, ...]
    rest: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PaperClaims:
    """`setup` is what its authors measured on, `errors` what is wrong in the source itself."""

    name: str
    title: str
    citation: str
    setup: str
    scale: str
    errors: tuple[str, ...]
    claims: tuple[Claim, ...]
    charts: tuple[Node, ...]

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        """How many claims have each verdict, in the order of the list."""
        found = Counter(claim.judgement.verdict for claim in self.claims)
        return tuple((verdict, found[verdict]) for verdict in VERDICTS if found[verdict])


def read_paper(result: Node) -> PaperClaims:
    return PaperClaims(
        name=result.text("name"),
        title=result.sentence("title"),
        citation=result.sentence("citation") if result.has("citation") else "",
        setup=result.sentence("setup") if result.has("setup") else "",
        scale=result.text("scale", ""),
        errors=result.texts("errors"),
        claims=tuple(_claim(node) for node in result.nodes("claims")),
        charts=tuple(result.nodes("charts") if result.has("charts") else ()),
    )


def _claim(node: Node) -> Claim:
    unit = node.text("unit", "")
    several = [_judgement(each, unit) for each in (node.nodes("by_machine") if node.has("by_machine") else [])]
    own = _judgement(node, unit)
    rest = [(label, node.sentence(key)) for label, key in _REST if node.has(key)]
    return Claim(
        id=node.text("id"),
        claim=node.sentence("claim"),
        published=_published(node),
        where=node.text("where", ""),
        judgement=own,
        others=tuple(each for each in several if each.machine != own.machine),
        rest=tuple((label, words) for label, words in rest if words),
    )


_REST: Final = (("tested by", "test"), ("rule", "rule"), ("setup", "setup"))


def _published(node: Node) -> str:
    if not node.has("published"):
        return ""
    published = node.items["published"]
    return node.text("published") if isinstance(published, str) else node.node("published").text("text", "")


def _judgement(node: Node, unit: str) -> Judgement:
    verdict = node.text("verdict")
    if verdict not in VERDICTS:
        refuse((node.where, "verdict"), f"one of {', '.join(VERDICTS)}", verdict)
    measured = node.value("measured")
    shown = SHOWN[unit_named(node.text("unit", unit))]
    return Judgement(
        machine=node.text("machine", ""),
        verdict=verdict,
        measured="" if isinstance(measured, Absent) else value_cell(measured, shown),
        why=node.sentence("why") if node.has("why") else "",
        runs=node.texts("runs"),
        findings=node.texts("findings"),
    )
