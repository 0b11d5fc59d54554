"""The sources of a report: runs and findings of a store and of files, with their statements and charts."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from deepstone.analysis.charts import charts, default_charts
from deepstone.analysis.facts import machine_key, machine_names
from deepstone.analysis.statements import statements
from deepstone.errors import RefusedInputError, UsageError, nearest, reason
from deepstone.report.book import Sources
from deepstone.report.figures import KINDS
from deepstone.report.figures.chart_data import check_chart
from deepstone.report.files import as_result, read_json
from deepstone.results.chart import Chart
from deepstone.results.claim import JudgedPaper
from deepstone.results.codec import as_paper, convert
from deepstone.results.findings import Finding
from deepstone.results.plain import shown
from deepstone.results.record import Record
from deepstone.results.scaling import Scaling
from deepstone.results.searched import NO_SEARCHES, Searched
from deepstone.results.study import StudyState
from deepstone.results.tune import Tuned
from deepstone.store.importing import Names, read_searched_records
from deepstone.store.layout import Damage
from deepstone.store.rows import Filters, matches
from deepstone.store.store import Store

_RECORDS_END: Final = ".jsonl"
_KINDS: Final = (*KINDS, "paper", "study")


def study_sources(store: Store, name: str, damaged: list[Damage]) -> Sources:
    """Return the sources of one study: the results of its tasks, in the figures that it requests."""
    return report_sources(store, Filters(), name, Gathered(), damaged)


def report_sources(
    store: Store | None, wanted: Filters, study: str | None, gathered: Gathered, damaged: list[Damage]
) -> Sources:
    """Return the sources from a store, or one study in it, and from files. Raises UsageError if the study is unknown.

    Unreadable records of the store are added to `damaged`.
    """
    state = None if study is None else _state(store, study)
    stored = _Stored()
    if store is not None:
        stored = _stored(store, wanted, state, damaged)
    gathered.records = [record for record in gathered.records if matches(record, wanted)]
    return _sources(stored, gathered, state)


class Gathered(Struct, kw_only=True):
    """The content of files. `skipped` lists files of a folder that are of another kind. `searches`: answers beside
    records, which say what a search made of them."""

    records: list[Record] = field(default_factory=list[Record])
    findings: list[Finding] = field(default_factory=list[Finding])
    charts: list[Chart] = field(default_factory=list[Chart])
    scalings: list[Scaling] = field(default_factory=list[Scaling])
    papers: list[JudgedPaper] = field(default_factory=list[JudgedPaper])
    studies: list[StudyState] = field(default_factory=list[StudyState])
    skipped: list[str] = field(default_factory=list[str])
    searches: list[Tuned] = field(default_factory=list[Tuned])
    names: Names = field(default_factory=Names)

    @staticmethod
    def from_paths(paths: Iterable[Path], *, beside: Store | None = None) -> Gathered:
        """Read these files and folders. Raises UsageError with the file's name for an unsuitable one. `beside`: the
        store whose runs are told with theirs."""
        gathered = Gathered(names=Names() if beside is None else Names.of(beside))
        for path in paths:
            gathered.take(path.expanduser())
        return gathered

    def take(self, path: Path) -> None:
        """Read a file, or every .jsonl and .json in a folder."""
        if not path.is_dir():
            self._take_file(path)
            return
        files = [file for file in _files_of(path) if file.suffix in (_RECORDS_END, ".json")]
        if not files:
            raise UsageError(f"{path}: holds no .jsonl or .json file; give a folder of records and findings")
        for file in files:
            try:
                self._take_file(file)
            except _OtherKindError as error:
                self.skipped.append(str(error))

    def _take_file(self, path: Path) -> None:
        if path.suffix == _RECORDS_END:
            self._take_records(path)
            return
        content = read_json(path)
        if "job" in content or "record" in content:
            self._take_records(path)
            return
        self._take_result(path, content)

    def _take_records(self, path: Path) -> None:
        records, searches = read_searched_records(path, self.names)
        self.records += records
        self.searches += searches

    def _take_result(self, path: Path, content: Mapping[str, object]) -> None:
        kind = content.get("kind")
        if kind not in _KINDS:
            problem = f"is of kind {shown(kind)}" if "kind" in content else "does not say of which kind it is"
            raise _OtherKindError(f"{path}: {problem}; a report takes {', '.join(_KINDS)} and records of runs")
        if content.get("schema", 1) != 1:
            raise RefusedInputError(f"{path}: is of schema {shown(content['schema'])}; this version reads schema 1")
        try:
            self._keep(str(kind), content)
        except UsageError as error:
            raise RefusedInputError(f"{path}: {error}") from error

    def _keep(self, kind: str, content: Mapping[str, object]) -> None:
        """Store one result. Malformed content is refused here, where the file's name is known."""
        if kind == "paper":
            self.papers.append(as_paper(content))
        elif kind == "study":
            self.studies.append(convert(content, StudyState))
        elif isinstance(result := as_result(content), Chart):
            check_chart(result)
            self.charts.append(result)
        elif isinstance(result, Scaling):
            self.scalings.append(result)
        elif isinstance(result, Finding):
            self.findings.append(result)


class _OtherKindError(RefusedInputError):
    """A JSON file of another kind: refused if the user names it, skipped in a folder."""


def _files_of(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {reason(error)}; give another folder") from error


class _Stored(Struct, frozen=True, kw_only=True):
    """The requested part of a store."""

    records: Sequence[Record] = ()
    findings: Sequence[Finding] = ()
    studies: Sequence[StudyState] = ()
    searched: Searched = NO_SEARCHES


def _state(store: Store | None, name: str) -> StudyState:
    state = None if store is None else store.studies.get(name)
    if state is None:
        known = [] if store is None else [each.name for each in store.studies.list()]
        advice = nearest(name, known) if known else "`deepstone study` runs one"
        raise UsageError(f"--study {name}: the store holds no such study; {advice}")
    return state


def _stored(store: Store, wanted: Filters, state: StudyState | None, damaged: list[Damage]) -> _Stored:
    listing = store.list(wanted)
    own = None if state is None else {run for task in state.tasks for run in task.runs}
    rows = [row for row in listing.rows if own is None or row.id in own]
    damaged.extend(listing.damaged)
    with _no_collecting():
        records = list(store.records(rows, damaged=damaged))
    findings = [finding for finding in store.findings.list(damaged=damaged) if own is None or finding.id in own]
    states = store.studies.list() if state is None else [state]
    return _Stored(records=records, findings=findings, studies=states, searched=store.searched())


@contextmanager
def _no_collecting() -> Generator[None]:
    """Pause garbage collection: thousands of records are millions of objects without a cycle, and the search for one
    takes a third of the time.

    The records stay until the command ends, so later collections skip them too.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def _sources(stored: _Stored, gathered: Gathered, state: StudyState | None) -> Sources:
    records = _without_repetition([*stored.records, *gathered.records])
    findings = [*stored.findings, *gathered.findings]
    studies = [*stored.studies, *gathered.studies]
    base = None if state is None else state.base
    figures = [] if state is None else list(state.figures)
    searches = [finding.content for finding in gathered.findings if isinstance(finding.content, Tuned)]
    searched = stored.searched.and_of(Searched.of([*searches, *gathered.searches]))
    requested_charts = charts(figures, records, base, searched) if figures else []
    requested_charts = requested_charts or default_charts(records, base, searched)
    names = machine_names(records)
    return Sources(
        records=records,
        machines={record.id: names[machine_key(record)] for record in records},
        findings=findings,
        studies=studies,
        charts=[*requested_charts, *gathered.charts],
        statements=statements(records, findings, study=state, sameness=_sameness(studies), searched=searched),
        scalings=gathered.scalings,
        papers=gathered.papers,
        title="" if state is None else state.title,
        lead="" if state is None else state.description,
    )


def _without_repetition(records: Iterable[Record]) -> list[Record]:
    """Return each run once: a store and a file exported from it may both have it. The first one counts."""
    return list({record.id: record for record in reversed([*records])}.values())[::-1]


def _sameness(studies: Iterable[StudyState]) -> dict[str, dict[str, bool]]:
    """Return the sameness of all studies: a framework that once differed stays excluded."""
    found: dict[str, dict[str, bool]] = {}
    for state in studies:
        for model, frameworks in state.sameness.items():
            for framework, same in frameworks.items():
                of_model = found.setdefault(model, {})
                of_model[framework] = same and of_model.get(framework, True)
    return found
