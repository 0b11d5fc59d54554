"""The data of a report: what was measured, put in the order in which a reader wants it. Nothing is drawn here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from deepstone.analysis.machines import machine_key, machine_names
from deepstone.errors import UsageError
from deepstone.records.schema import DOUBT_CODES, Record
from deepstone.report.catalog import make_figures
from deepstone.report.figure import Figure
from deepstone.report.figures.chart import chart_with_setups
from deepstone.report.machine_facts import MachineFacts, machines_of
from deepstone.report.paper_claims import PaperClaims, read_paper
from deepstone.report.reading import Node
from deepstone.report.run_rows import RunRow, run_row
from deepstone.report.setup_words import workload_and_setup
from deepstone.report.statement import Statement, read_statement
from deepstone.report.unfinished import Failure, Unfinished, failures_of, unfinished_in
from deepstone.report.wording import harmless

_FINDINGS_AT_MOST: Final = 12  # of a kind; a page with hundreds of layer tables is none
_KINDS: Final = {
    "peaks": ("ceilings", "Ceilings", "What the machine can do at most"),
    "layers": ("layers", "Time", "Where the time goes"),
    "conv": ("convolutions", "Convolutions", "Convolutions, algorithm by algorithm"),
    "memory": ("memory", "Memory", "Where memory goes"),
}


FINDING_KINDS: Final = tuple(_KINDS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """What a report is made of, as JSON has it: records of runs, findings, states of studies, charts, statements and
    papers. Everything in it may come from a stranger."""

    records: Sequence[Record] = ()
    findings: Sequence[Mapping[str, Any]] = ()
    studies: Sequence[Mapping[str, Any]] = ()
    charts: Sequence[Mapping[str, Any]] = ()
    statements: Sequence[Mapping[str, Any]] = ()
    papers: Sequence[Mapping[str, Any]] = ()
    title: str = ""
    lead: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chapter:
    """Figures under one heading; `short` is its name where there is little room.

    `missing` names what could not be drawn, with the reason.
    """

    anchor: str
    short: str
    title: str
    figures: tuple[Figure, ...]
    lead: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    paper: PaperClaims | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Book:
    title: str
    lead: str
    machines: tuple[MachineFacts, ...]
    statements: tuple[Statement, ...]
    chapters: tuple[Chapter, ...]
    runs: tuple[RunRow, ...]
    failures: tuple[Failure, ...]
    unfinished: tuple[Unfinished, ...]
    doubts: tuple[str, ...] = field(default=())

    @property
    def measured(self) -> int:
        return sum(row.outcome == "ok" for row in self.runs)


def make_book(sources: Sources) -> Book:
    """UsageError for a malformed statement or paper; a chart or finding that is not drawn is named in its chapter."""
    names = machine_names(sources.records)
    machines = machines_of(sources.records, sources.findings)
    runs = tuple(run_row(record, harmless(names[machine_key(record)])) for record in sources.records)
    setups = _Setups({record["id"]: record for record in sources.records})
    return Book(
        title=harmless(sources.title) or _title(machines),
        lead=harmless(sources.lead, 600),
        machines=machines,
        statements=tuple(read_statement(Node(each)) for each in sources.statements),
        chapters=tuple(_chapters(sources, setups)),
        runs=runs,
        failures=failures_of(runs),
        unfinished=tuple(line for state in sources.studies for line in unfinished_in(Node(state))),
        doubts=_doubts(runs),
    )


class _Setups(Mapping[str, str]):
    """How each run was set up, by id; put into words only for those that a figure shows."""

    def __init__(self, records: Mapping[str, Record]) -> None:
        self._records = records

    def __getitem__(self, run: str) -> str:
        return workload_and_setup(self._records[run])

    def __iter__(self) -> Any:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)


def _title(machines: Sequence[MachineFacts]) -> str:
    if not machines:
        return "Deepstone report"
    if len(machines) > 2:
        return f"Measured on {len(machines)} machines"
    return f"Measured on {' and '.join(machine.name for machine in machines)}"


def _chapters(sources: Sources, setups: Mapping[str, str]) -> list[Chapter]:
    found = [_paper(read_paper(Node(paper)), setups) for paper in sources.papers]
    drawn, missing = _charts([Node(chart) for chart in sources.charts], setups)
    found.append(
        Chapter(anchor="results", short="Results", title="Results", figures=tuple(drawn), missing=tuple(missing))
    )
    found += [_findings(kind, sources.findings) for kind in _KINDS]
    return [chapter for chapter in found if chapter.figures or chapter.missing or chapter.paper]


def _paper(paper: PaperClaims, setups: Mapping[str, str]) -> Chapter:
    drawn, missing = _charts(paper.charts, setups)
    return Chapter(
        anchor=f"paper-{paper.name}",
        short=paper.name,
        title=paper.title,
        lead=_paper_lead(paper),
        figures=tuple(drawn),
        missing=tuple(missing),
        paper=paper,
    )


def _paper_lead(paper: PaperClaims) -> tuple[str, ...]:
    setup = f"The paper measured on {paper.setup}." if paper.setup else ""
    scale = f"Measured again at scale {paper.scale}." if paper.scale else ""
    return tuple(line for line in (paper.citation, " ".join(part for part in (setup, scale) if part)) if line)


def _charts(charts: Sequence[Node], setups: Mapping[str, str]) -> tuple[list[Figure], list[str]]:
    drawn: list[Figure] = []
    missing: list[str] = []
    for number, chart in enumerate(charts, start=1):
        try:
            drawn.append(chart_with_setups(chart, setups))
        except UsageError as error:
            missing.append(f"{_name_of(chart.items, f'chart {number}')}: {error}")
    return drawn, missing


def _findings(kind: str, findings: Sequence[Mapping[str, Any]]) -> Chapter:
    """The newest of each task, and of those the newest few."""
    anchor, short, title = _KINDS[kind]
    own = [finding for finding in findings if finding.get("kind") == kind]
    newest = list({_task_of(finding, at): finding for at, finding in enumerate(own)}.values())
    figures: list[Figure] = []
    missing: list[str] = []
    for finding in newest[:-_FINDINGS_AT_MOST]:
        missing.append(f"{_name_of(finding, kind)}: an older one, left out for its length; `deepstone draw` draws it")
    for finding in newest[-_FINDINGS_AT_MOST:]:
        name = _name_of(finding, kind)
        try:
            drawable = make_figures(finding, None)
        except UsageError as error:
            missing.append(f"{name}: {error}")
            continue
        figures += drawable.figures
        missing += [f"{name}, {line}" for line in drawable.missing]
    return Chapter(anchor=anchor, short=short, title=title, figures=tuple(figures), missing=tuple(missing))


def _task_of(finding: Mapping[str, Any], at: int) -> str:
    return str(finding.get("task", f"of no task, {at}"))


def _name_of(data: Mapping[str, Any], otherwise: str) -> str:
    for key in ("model", "title", "name"):
        if isinstance(data.get(key), str):
            return harmless(data[key])
    return otherwise


def _doubts(runs: Sequence[RunRow]) -> tuple[str, ...]:
    """Each reason once, with how many runs it is about, the commonest first."""
    counts = Counter(code for row in runs for code in dict.fromkeys(row.doubts))
    return tuple(
        f"{count:,} {'run' if count == 1 else 'runs'}: {code} – {DOUBT_CODES.get(code, 'no more is known')}"
        for code, count in counts.most_common()
    )
