"""What the store has of a study's tasks: asked once at the start, and again for a task just before it is measured."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from deepstone.errors import StoreError
from deepstone.records.identity import JOB_PART
from deepstone.store.rows import Row
from deepstone.store.store import Store
from deepstone.studies.perform import Performed, of_finding, of_record
from deepstone.studies.task import Task


class Known:
    """Runs and findings by task, as they were when this was made."""

    def __init__(self, store: Store, rows: Iterable[Row]) -> None:
        self._store = store
        self._runs: dict[str, list[Row]] = {}
        for row in rows:
            self._runs.setdefault(row.job, []).append(row)
        self._findings: dict[str, list[str]] = {}
        for id in store.findings.ids():
            self._findings.setdefault(id[:JOB_PART], []).append(id)

    def best(self, task: Task) -> Performed | None:
        """The newest that ended well, else the newest; None when there is none."""
        if task.kind != "run":
            return self._best_finding(task)
        rows = self._runs.get(task.id, [])
        if not rows:
            return None
        row = next((row for row in reversed(rows) if row.outcome == "ok"), rows[-1])
        if row.outcome == "ok":
            return Performed(id=row.id, outcome=row.outcome, reason="", speed=row.samples_per_s)
        return of_record(self._store.get(row.id))

    def _best_finding(self, task: Task) -> Performed | None:
        found: list[Performed] = []
        for id in self._findings.get(task.id[:JOB_PART], []):
            with suppress(StoreError):  # one that is damaged is as good as none; `results rebuild` tells of it
                found.append(of_finding(self._store.findings.get(id)))
        return next((each for each in reversed(found) if each.outcome == "ok"), found[-1] if found else None)

    def newer(self, task: Task) -> Performed | None:
        """What another process has stored of it since; None when there is nothing new."""
        if task.kind == "run":
            known = {row.id for row in self._runs.get(task.id, [])}
            new = [id for id in self._store.runs_of(task.id) if id not in known]
            return of_record(self._store.get(new[-1])) if new else None
        known = set(self._findings.get(task.id[:JOB_PART], []))
        new = [id for id in self._store.findings.of_task(task.id) if id not in known]
        return of_finding(self._store.findings.get(new[-1])) if new else None
