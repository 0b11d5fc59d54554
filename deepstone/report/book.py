"""The content of a report, in reading order. This module draws nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.errors import UsageError
from deepstone.report.figure import Figure
from deepstone.report.figures import make_figure, make_figures
from deepstone.report.figures.chart import chart
from deepstone.report.machines import MachineFacts, machines_of
from deepstone.report.runs import RunRow, run_row
from deepstone.report.scaling import scaling_figures
from deepstone.report.search import Search, kept, search_of
from deepstone.report.wording import cut, made_harmless
from deepstone.results.chart import Chart
from deepstone.results.claim import JudgedPaper, Statement
from deepstone.results.comm import CommCurves
from deepstone.results.doubt import DOUBT_CODES
from deepstone.results.findings import KINDS, Finding
from deepstone.results.parallel import Parallel
from deepstone.results.parts import Part
from deepstone.results.record import Record
from deepstone.results.scaling import Scaling
from deepstone.results.study import StudyState, StudyTask
from deepstone.results.tune import Tuned
from deepstone.results.view import headline

_LEAD_ROOM: Final = 600
_TASKS_LISTED: Final = 200
_DONE: Final = "done"
_TIMELINES_AT_MOST: Final = 4
_FINDINGS_AT_MOST: Final = 12  # of one kind; nobody reads a page with hundreds of layer tables
_FIGURES_OF_A_SEARCH: Final = 2  # the gain and its parts, and the search as it went
_ABOUT_SEARCHES: Final = (
    "The gain is that of the finals: fresh processes of the default and of the best setups, in turns. Same training: "
    "whether the best setup is shown to compute what the default does, within what was asked for."
)
# Anchor, short name and title of the chapter of a kind. A kind that is not here has its own name, and comes last.
CHAPTERS: Final = {
    "peaks": ("ceilings", "Ceilings", "What the machine can do at most"),
    "layers": ("layers", "Time", "Where the time goes"),
    "conv": ("convolutions", "Convolutions", "Convolutions, algorithm by algorithm"),
    "memory": ("memory", "Memory", "Where memory goes"),
    "comm": ("scaling", "Scaling", "Scaling and communication"),
}


class Sources(Struct, frozen=True, kw_only=True):
    """The sources of a report. `machines` are the names of machines, by run. No text in it is trusted."""

    records: Sequence[Record] = ()
    machines: Mapping[str, str] = field(default_factory=dict[str, str])
    findings: Sequence[Finding] = ()
    studies: Sequence[StudyState] = ()
    charts: Sequence[Chart] = ()
    scalings: Sequence[Scaling] = ()
    statements: Sequence[Statement] = ()
    papers: Sequence[JudgedPaper] = ()
    title: str = ""
    lead: str = ""


class Chapter(Struct, frozen=True, kw_only=True):
    """Figures under one heading; `short` is the heading for narrow places.

    `missing` lists figures that could not be drawn, with the reason.
    """

    anchor: str
    short: str
    title: str
    figures: tuple[Figure, ...]
    lead: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    paper: JudgedPaper | None = None
    searches: tuple[Search, ...] = ()


class Failure(Part, frozen=True, kw_only=True):
    """One reason of failure, and all runs that failed for it."""

    why: str
    what: str
    runs: tuple[str, ...]


class Unfinished(Part, frozen=True, kw_only=True):
    """Tasks of a study without a result; `tasks` are title, state and reason of each."""

    study: str
    resume: str
    tasks: tuple[tuple[str, str, str], ...]
    more: int


class Book(Struct, frozen=True, kw_only=True):
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
    """Make the content of a report. Charts and findings without a figure are listed in their chapter."""
    machines = machines_of(sources.records, sources.machines, sources.findings)
    runs = tuple(run_row(record, sources.machines[record.id]) for record in sources.records)
    setups = _Setups({record.id: record for record in sources.records})
    return made_harmless(
        Book(
            title=sources.title or _title(machines),
            lead=cut(sources.lead, _LEAD_ROOM),
            machines=machines,
            statements=tuple(sources.statements),
            chapters=tuple(_chapters(sources, setups)),
            runs=runs,
            failures=_failures(runs),
            unfinished=tuple(line for state in sources.studies for line in _unfinished(state)),
            doubts=_doubts(runs),
        )
    )


class _Setups(Mapping[str, str]):
    """The setups of runs, by id; formatted only for runs that a figure shows."""

    def __init__(self, records: Mapping[str, Record]) -> None:
        self._records = records

    def __getitem__(self, run: str) -> str:
        return headline(self._records[run])

    def __iter__(self) -> Iterator[str]:
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
    found = [_paper(paper, setups) for paper in sources.papers]
    figures, missing = _charts(sources.charts, setups)
    found.append(
        Chapter(anchor="results", short="Results", title="Results", figures=tuple(figures), missing=tuple(missing))
    )
    found.append(_searches(sources.findings))
    kinds = [kind for kind in dict.fromkeys((*CHAPTERS, *KINDS)) if kind != Tuned.KIND]
    by_kind = {kind: _findings(kind, sources.findings) for kind in kinds}
    found += {**by_kind, CommCurves.KIND: _with_processes(by_kind[CommCurves.KIND], sources)}.values()
    return [chapter for chapter in found if chapter.figures or chapter.missing or chapter.paper or chapter.searches]


def _paper(paper: JudgedPaper, setups: Mapping[str, str]) -> Chapter:
    figures, missing = _charts(paper.charts, setups)
    setup = f"The paper measured on {paper.setup}." if paper.setup else ""
    scale = "" if isinstance(paper.scale, Absent) else f"Measured again at scale {paper.scale}."
    lead = (paper.citation, " ".join(part for part in (setup, scale) if part))
    return Chapter(
        anchor=f"paper-{paper.name}",
        short=paper.name,
        title=paper.title,
        lead=tuple(line for line in lead if line),
        figures=tuple(figures),
        missing=tuple(missing),
        paper=paper,
    )


def _charts(charts: Sequence[Chart], setups: Mapping[str, str]) -> tuple[list[Figure], list[str]]:
    figures: list[Figure] = []
    missing: list[str] = []
    for each in charts:
        try:
            figures.append(chart(each, setups))
        except UsageError as error:
            missing.append(f"{each.title}: {error}")
    return figures, missing


def _with_processes(chapter: Chapter, sources: Sources) -> Chapter:
    """Add the answers of `scale`, what records tell of several processes, and timelines of the newest run of each job,
    of those the newest few."""
    figures: list[Figure] = []
    missing: list[str] = []
    for scaling in sources.scalings:
        drawable = make_figures(scaling, None)
        figures += drawable.figures
        missing += [f"{scaling.model}, {line}" for line in drawable.missing]
    figures += scaling_figures(sources.records)
    several = sorted((record for record in sources.records if _has_timeline(record)), key=lambda each: each.started_at)
    newest = list({record.job: record for record in several}.values())
    figures += [make_figure(record, "timeline") for record in newest[-_TIMELINES_AT_MOST:]]
    left_out = len(newest) - _TIMELINES_AT_MOST
    if left_out > 0:
        missing.append(f"{left_out} older timelines, left out for their length; `deepstone draw RUN` draws them")
    return replace(chapter, figures=(*figures, *chapter.figures), missing=(*missing, *chapter.missing))


def _has_timeline(record: Record) -> bool:
    return isinstance(record.parallel, Parallel) and not isinstance(record.parallel.timeline, Absent)


def _newest(kind: str, findings: Sequence[Finding]) -> list[Finding]:
    """Return the newest finding of each task."""
    own = [finding for finding in findings if finding.kind == kind]
    return list({finding.task or f"of no task, {at}": finding for at, finding in enumerate(own)}.values())


def _searches(findings: Sequence[Finding]) -> Chapter:
    """Return the answers of `tune`, one for each question, with the first figures of the page about it."""
    searches = kept(each for each in findings if each.kind == Tuned.KIND and each.outcome in (None, "ok"))
    figures: list[Figure] = []
    missing: list[str] = []
    for finding in [each.finding for each in searches][-_FINDINGS_AT_MOST:]:
        name = finding.model or Tuned.KIND
        try:
            drawable = make_figures(finding, None)
        except UsageError as error:
            missing.append(f"{name}: {error}")
            continue
        figures += drawable.figures[:_FIGURES_OF_A_SEARCH]
        if len(drawable.figures) > _FIGURES_OF_A_SEARCH and finding.id:
            missing.append(f"{name}: further figures of this search; `deepstone draw {finding.id} -o tune.html`")
    return Chapter(
        anchor="searches",
        short="Searches",
        title="Searches for the best setup",
        lead=(_ABOUT_SEARCHES,) if searches else (),
        figures=tuple(figures),
        missing=tuple(missing),
        searches=tuple(search_of(each.finding, each.later) for each in searches),
    )


def _findings(kind: str, findings: Sequence[Finding]) -> Chapter:
    """Return the newest finding of each task, and of those the newest few."""
    anchor, short, title = CHAPTERS.get(kind, (kind, kind.capitalize(), kind.capitalize()))
    newest = _newest(kind, findings)
    figures: list[Figure] = []
    missing: list[str] = []
    for finding in newest[:-_FINDINGS_AT_MOST]:
        missing.append(f"{finding.model or kind}: an older one, left out for its length; `deepstone draw` draws it")
    for finding in newest[-_FINDINGS_AT_MOST:]:
        name = finding.model or kind
        try:
            drawable = make_figures(finding, None)
        except UsageError as error:
            missing.append(f"{name}: {error}")
            continue
        figures += drawable.figures
        missing += [f"{name}, {line}" for line in drawable.missing]
    return Chapter(anchor=anchor, short=short, title=title, figures=tuple(figures), missing=tuple(missing))


def _doubts(runs: Sequence[RunRow]) -> tuple[str, ...]:
    """Return each doubt once, with its number of runs, the most frequent first."""
    counts = Counter(code for row in runs for code in dict.fromkeys(row.doubts))
    return tuple(
        f"{count:,} {'run' if count == 1 else 'runs'}: {code} – {DOUBT_CODES.get(code, 'no more is known')}"
        for code, count in counts.most_common()
    )


def _failures(runs: Sequence[RunRow]) -> tuple[Failure, ...]:
    """Return failures grouped by reason, the most frequent first."""
    groups: dict[str, list[RunRow]] = {}
    for row in runs:
        if row.outcome != "ok":
            groups.setdefault(dict(row.rest).get("why it failed", row.outcome), []).append(row)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    return tuple(Failure(why=why, what=_what_failed(rows), runs=tuple(row.id for row in rows)) for why, rows in ordered)


def _unfinished(state: StudyState) -> list[Unfinished]:
    """Return the unfinished tasks of the study, if there are any."""
    tasks = [task for task in state.tasks if task.state != _DONE]
    if not tasks:
        return []
    shown = tuple((_task_title(task), task.state, task.why) for task in tasks[:_TASKS_LISTED])
    return [Unfinished(study=state.title or state.name, resume=state.resume, tasks=shown, more=len(tasks) - len(shown))]


def _task_title(task: StudyTask) -> str:
    return task.title if task.round == 1 else f"{task.title} (round {task.round})"


def _what_failed(rows: Sequence[RunRow]) -> str:
    first = rows[0]
    words = " ".join(word for word in (first.model, f"batch={first.batch}", first.framework, first.setup) if word)
    return words if len(rows) == 1 else f"{words} and {len(rows) - 1:,} more"
