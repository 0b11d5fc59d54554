"""What the state that is in the store tells of an earlier call of the same study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from deepstone.records.schema import is_absent
from deepstone.store.study_states import StudyState


class Earlier:
    """`is_unfinished`: the same command was cut short, and is now gone on with."""

    def __init__(self, state: StudyState | None, command: Sequence[str]) -> None:
        found = state or {}
        self.is_unfinished = is_absent(found.get("finished_at")) and found.get("command") == list(command)
        self.started_at = str(found["started_at"]) if self.is_unfinished else ""
        tasks = cast(list[dict[str, Any]], found.get("tasks", []))
        self._took_s = {
            (task.get("id"), run): float(task["took_s"])
            for task in tasks
            if isinstance(task.get("took_s"), int | float) and isinstance(task.get("runs"), list)
            for run in cast(list[object], task["runs"])
        }

    def took_s(self, task: str, run: str) -> float | None:
        """How long it took to measure this run, if the study did so."""
        return self._took_s.get((task, run))
