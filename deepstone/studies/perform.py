"""Performs one task, or finds it in the store. A run becomes a record, anything else a finding; both are stored at
once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.durable import signals_blocked
from deepstone.errors import InternalError, StoreError
from deepstone.measure.effort import Effort
from deepstone.results.findings import Finding
from deepstone.results.identity import canonical_task
from deepstone.results.record import Record
from deepstone.runner.assemble import now
from deepstone.runner.convolutions.lab import LabEffort, new_lab
from deepstone.runner.findings import (
    ceilings_finding,
    lab_finding,
    layers_finding,
    memory_finding,
    peaks_finding,
    storable_finding,
)
from deepstone.runner.layers.measure import LayersEffort
from deepstone.runner.measurement import OnProgress
from deepstone.runner.run import run_job
from deepstone.store.rows import Row
from deepstone.store.store import Store
from deepstone.studies.state import Task


class Performed(Struct, frozen=True, kw_only=True):
    """`speed` is what people count in a second, such as images, where that was measured."""

    id: str
    outcome: str
    reason: str
    speed: float | None = None
    things: str = "images"


def perform(task: Task, store: Store, on_progress: OnProgress) -> Performed:
    """Measure and store. Raises MissingError if something is missing, StoreError if the result cannot be stored,
    InternalError if our own code fails."""
    if task.kind == "run":
        effort = Effort(
            target_share=task.effort.target_share,
            budget_s=task.budget_s,
            timeout_s=task.effort.timeout_s,
            phases=task.effort.phases,
        )
        draft = run_job(task.job, effort, on_progress)
        with signals_blocked():
            return of_record(store.add(draft))
    finding = _finding(task, on_progress)
    with signals_blocked():
        return of_finding(store.findings.add(finding))


def of_record(record: Record) -> Performed:
    failure, summary = record.failure, record.summary
    return Performed(
        id=record.id,
        outcome=record.outcome,
        reason="" if isinstance(failure, Absent) else failure.reason,
        speed=None if isinstance(summary, Absent) else (summary.units_per_s or summary.samples_per_s).median,
        things=record.workload.things,
    )


def of_finding(finding: Finding) -> Performed:
    reason = "" if finding.failure is None else finding.failure.reason
    return Performed(id=str(finding.id), outcome=str(finding.outcome), reason=reason)


def _finding(task: Task, on_progress: OnProgress) -> Finding:
    started_at = now()
    return storable_finding(_found(task, on_progress), task.job, task=task.id, started_at=started_at)


def _found(task: Task, on_progress: OnProgress) -> Finding:
    job, effort = task.job, task.effort
    match task.kind:
        case "layers":
            layers_effort = LayersEffort(
                budget_s=task.budget_s,
                timeout_s=effort.timeout_s,
                in_place=task.method != "isolated",
                isolated=task.method != "in-place",
            )
            return layers_finding(job, layers_effort, on_progress)
        case "memory":
            return memory_finding(job, timeout_s=effort.timeout_s, on_progress=on_progress)
        case "conv":
            lab_effort = LabEffort(budget_s=task.budget_s, timeout_s=effort.timeout_s)
            return lab_finding(job, lab_effort, new_lab(), on_progress)
        case "peaks":
            peaks = peaks_finding(job.environment, job.machine, str(job.request["device"]), on_progress)
            return ceilings_finding(peaks)
        case "run":
            raise InternalError("a run makes a record, not a finding")


class Known:
    """Stored runs and findings by task, as of the creation of this object."""

    def __init__(self, store: Store, rows: Iterable[Row]) -> None:
        self._store = store
        self._runs: dict[str, list[Row]] = {}
        for row in rows:
            self._runs.setdefault(row.canonical_job, []).append(row)

    @cached_property
    def _findings(self) -> Mapping[str, Sequence[Performed]]:
        """Read them on first use: their files are large."""
        found: dict[str, list[Performed]] = {}
        for finding in self._store.findings.list():  # skips damaged files, which `rebuild` reports
            found.setdefault(canonical_task(finding), []).append(of_finding(finding))
        return found

    def best(self, task: Task) -> Performed | None:
        """Return the newest that succeeded, else the newest; None if there is none."""
        if task.kind != "run":
            return self._best_finding(task)
        rows = self._runs.get(task.id, [])
        if not rows:
            return None
        row = next((row for row in reversed(rows) if row.outcome == "ok"), rows[-1])
        if row.outcome == "ok":
            return Performed(id=row.id, outcome=row.outcome, reason="", speed=row.things_per_s, things=row.things)
        return of_record(self._store.get(row.id))

    def _best_finding(self, task: Task) -> Performed | None:
        found = self._findings.get(task.id, [])
        return next((each for each in reversed(found) if each.outcome == "ok"), found[-1] if found else None)

    def newer(self, task: Task) -> Performed | None:
        """Return the result that another process has stored since; None if there is none."""
        if task.kind == "run":
            known = {row.id for row in self._runs.get(task.id, [])}
            new = [id for id in self._store.runs_of(task.id) if id not in known]
            return of_record(self._store.get(new[-1])) if new else None
        known = {each.id for each in self._findings.get(task.id, [])}
        new = [id for id in self._store.findings.of_task(task.id) if id not in known]
        for id in reversed(new):
            with suppress(StoreError):
                return of_finding(self._store.findings.get(id))
        return None
