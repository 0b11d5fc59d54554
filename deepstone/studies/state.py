"""The state of a study, as JSON: the status of every task and the runs that came of it.

waiting ──▶ done | failed            measured; a run or finding is named
        ──▶ pruned                   it cannot succeed, and `why` says so
        ──▶ left out                 there was no time for it; the next call takes it up
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, cast

from deepstone.absent import Absent, as_json
from deepstone.records.schema import is_absent
from deepstone.store.study_states import StudyState
from deepstone.studies.task import Task

SCHEMA: Final = 1
STATES: Final = ("waiting", "done", "failed", "pruned", "left out")

TaskState: TypeAlias = Literal["waiting", "done", "failed", "pruned", "left out"]


@dataclass(kw_only=True, slots=True)
class TaskStatus:
    """What became of one task so far."""

    task: Task
    state: TaskState = "waiting"
    why: str = ""
    runs: tuple[str, ...] = ()
    estimate_s: float = 0.0
    estimate_from: str = ""
    took_s: float | None = None  # None: not measured by this study

    @property
    def is_settled(self) -> bool:
        """Whether a call that goes on with the study leaves it alone."""
        return self.state in ("done", "failed", "pruned")

    def settle(self, state: TaskState, *, why: str = "", runs: tuple[str, ...] = ()) -> None:
        self.state, self.why, self.runs = state, why, runs

    def to_json(self) -> dict[str, Any]:
        task = self.task
        return {
            "id": task.id,
            "kind": task.kind,
            "title": task.title,
            "model": task.model,
            "round": task.round,
            "state": self.state,
            "why": self.why,
            "runs": list(self.runs),
            "priority": task.priority,
            "estimate_s": self.estimate_s,
            "estimate_from": self.estimate_from,
            "took_s": Absent("this study did not measure it") if self.took_s is None else self.took_s,
            "sweep": task.sweep,
            "changed": dict(task.changed),
            "command": list(task.command),
        }


@dataclass(kw_only=True, slots=True)
class State:
    """The whole study, rewritten after every task."""

    name: str
    title: str
    description: str
    command: tuple[str, ...]
    resume: str
    started_at: str
    finished_at: str = ""
    base: dict[str, Any] = field(default_factory=dict[str, Any])
    figures: Sequence[Any] = ()
    tasks: list[TaskStatus] = field(default_factory=list[TaskStatus])
    addable: Sequence[str] = ()  # frameworks that it would measure too, were they installed
    sameness: dict[str, dict[str, bool]] = field(default_factory=dict[str, dict[str, bool]])  # network, framework

    def count(self, *states: TaskState) -> int:
        return sum(task.state in states for task in self.tasks)

    def to_json(self) -> dict[str, Any]:
        return as_json(
            {
                "schema": SCHEMA,
                "kind": "study",
                "name": self.name,
                "title": self.title,
                "description": self.description,
                "command": list(self.command),
                "resume": self.resume,
                "started_at": self.started_at,
                "finished_at": self.finished_at or Absent(f"not finished; {self.resume}"),
                "tasks": [task.to_json() for task in self.tasks],
                "base": self.base,
                "figures": [dict(figure) for figure in self.figures],
                "sameness": self.sameness,
                "addable": list(self.addable),
            }
        )


class Earlier:
    """`is_unfinished`: the same command was cut short, and is now gone on with."""

    def __init__(self, state: StudyState | None, command: Sequence[str]) -> None:
        found = state or {}
        self.is_unfinished = is_absent(found.get("finished_at")) and found.get("command") == list(command)
        self.started_at = str(found["started_at"]) if self.is_unfinished else ""
        tasks = cast(list[dict[str, Any]], found.get("tasks", []))
        self._took_s = {
            run: float(task["took_s"])
            for task in tasks
            if isinstance(task.get("took_s"), int | float) and isinstance(task.get("runs"), list)
            for run in cast(list[str], task["runs"])
        }

    def took_s(self, run: str) -> float | None:
        """How long it took to measure this run, if the study did so."""
        return self._took_s.get(run)
