"""What goes into a report: runs and findings of a store and of files, and what they mean."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepstone.cli.stored import warn
from deepstone.errors import UsageError, nearest

if TYPE_CHECKING:
    from deepstone.records.schema import Record
    from deepstone.report.book import Sources
    from deepstone.report.source_files import Gathered
    from deepstone.store.layout import Damage
    from deepstone.store.rows import Filters
    from deepstone.store.store import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kept:
    """What of a store is asked for."""

    records: Sequence[Record]
    findings: Sequence[Mapping[str, Any]]
    studies: Sequence[Mapping[str, Any]]


def study_sources(store: Store, state: Mapping[str, Any]) -> Sources:
    """Of one study: what its tasks measured, in the figures that it asks for."""
    from deepstone.report.source_files import Gathered
    from deepstone.store.rows import Filters

    return _sources(_kept(store, Filters(), [state], state), Gathered(), state)


def report_sources(store: Store | None, wanted: Filters, study: str | None, gathered: Gathered) -> Sources:
    """Of a store, or one study in it, and of files; UsageError when the store has no such study."""
    from deepstone.store.rows import matches

    state = None if study is None else _state(store, study)
    kept = _Kept(records=(), findings=(), studies=())
    if store is not None:
        kept = _kept(store, wanted, store.studies.list() if state is None else [state], state)
    gathered.records = [record for record in gathered.records if matches(record, wanted)]
    return _sources(kept, gathered, state)


def _state(store: Store | None, name: str) -> Mapping[str, Any]:
    state = None if store is None else store.studies.get(name)
    if state is None:
        known = [] if store is None else [str(each["name"]) for each in store.studies.list()]
        told = nearest(name, known) if known else "`deepstone study` runs one"
        raise UsageError(f"--study {name}: the store holds no such study; {told}")
    return state


def _kept(
    store: Store, wanted: Filters, studies: Sequence[Mapping[str, Any]], state: Mapping[str, Any] | None
) -> _Kept:
    listing = store.list(wanted)
    own = None if state is None else {run for task in state["tasks"] for run in task.get("runs", [])}
    rows = [row for row in listing.rows if own is None or row.id in own]
    damaged: list[Damage] = list(listing.damaged)
    with _no_collecting():
        records = list(store.records(rows, damaged=damaged))
    findings = [finding for finding in store.findings.list() if own is None or finding["id"] in own]
    warn(damaged)
    return _Kept(records=records, findings=findings, studies=studies)


@contextmanager
def _no_collecting() -> Generator[None]:
    """Thousands of records are millions of objects without a cycle; looking for one would take a third of the time.

    They stay until the command ends, so later searches leave them out, too.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def _sources(kept: _Kept, gathered: Gathered, state: Mapping[str, Any] | None) -> Sources:
    from deepstone.analysis.charts import charts, default_charts
    from deepstone.analysis.statements import statements
    from deepstone.report.book import Sources

    records = _without_repetition([*kept.records, *gathered.records])
    findings = [*kept.findings, *gathered.findings]
    studies = [*kept.studies, *gathered.studies]
    asked: Mapping[str, Any] = state or {}
    base = asked.get("base")
    figures = asked.get("figures", [])
    drawn = (charts(figures, records, base) if figures else []) or default_charts(records, base)
    return Sources(
        records=records,
        findings=findings,
        studies=studies,
        charts=[*drawn, *gathered.charts],
        statements=statements(records, findings, state=state, sameness=_sameness(studies)),
        papers=gathered.papers,
        title=str(asked.get("title", "")),
        lead=str(asked.get("description", "")),
    )


def _without_repetition(records: Iterable[Record]) -> list[Record]:
    """A run may be in a store and in a file that was exported from it; the first one counts."""
    return list({record["id"]: record for record in reversed([*records])}.values())[::-1]


def _sameness(studies: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, bool]]:
    """Of all studies: a framework that once computed something else stays out."""
    found: dict[str, dict[str, bool]] = {}
    for state in studies:
        for model, frameworks in state.get("sameness", {}).items():
            for framework, same in frameworks.items():
                of_model = found.setdefault(model, {})
                of_model[framework] = bool(same) and of_model.get(framework, True)
    return found


def taken_in(paths: Iterable[Path]) -> Gathered:
    """Everything in these files and folders."""
    from deepstone.report.source_files import Gathered

    gathered = Gathered()
    for path in paths:
        gathered.take(path.expanduser())
    return gathered
