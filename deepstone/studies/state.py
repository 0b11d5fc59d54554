"""A study under way: the status of every task, and what was known of it before. `results.study` says how it is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deepstone.absent import Absent
from deepstone.results.parts import Json
from deepstone.results.study import NOT_MEASURED, StudyState, StudyTask, TaskState
from deepstone.setups.axes import Value
from deepstone.studies.task import Task


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

    def kept(self) -> StudyTask:
        task = self.task
        return StudyTask(
            id=task.id,
            kind=task.kind,
            title=task.title,
            model=task.model,
            round=task.round,
            state=self.state,
            why=self.why,
            runs=list(self.runs),
            priority=task.priority,
            estimate_s=self.estimate_s,
            estimate_from=self.estimate_from,
            took_s=NOT_MEASURED if self.took_s is None else self.took_s,
            sweep=task.sweep,
            changed=task.changed,
            command=list(task.command),
        )


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
    base: Mapping[str, Value] = field(default_factory=dict[str, Value])
    figures: Sequence[Mapping[str, Json]] = ()
    tasks: list[TaskStatus] = field(default_factory=list[TaskStatus])
    addable: Sequence[str] = ()  # frameworks that it would measure too, were they installed
    sameness: dict[str, dict[str, bool]] = field(default_factory=dict[str, dict[str, bool]])  # network, framework

    def count(self, *states: TaskState) -> int:
        return sum(task.state in states for task in self.tasks)

    def kept(self) -> StudyState:
        return StudyState(
            name=self.name,
            title=self.title,
            description=self.description,
            command=list(self.command),
            resume=self.resume,
            started_at=self.started_at,
            finished_at=self.finished_at or Absent(f"not finished; {self.resume}"),
            tasks=[task.kept() for task in self.tasks],
            base=self.base,
            figures=[dict(figure) for figure in self.figures],
            sameness=self.sameness,
            addable=list(self.addable),
        )


class Earlier:
    """`is_unfinished`: the same command was cut short, and is now gone on with."""

    def __init__(self, state: StudyState | None, command: Sequence[str]) -> None:
        unfinished = state is not None and isinstance(state.finished_at, Absent) and state.command == list(command)
        self.is_unfinished = unfinished
        self.started_at = state.started_at if state is not None and unfinished else ""
        self._took_s = {
            run: task.took_s
            for task in (() if state is None else state.tasks)
            if not isinstance(task.took_s, Absent)
            for run in task.runs
        }

    def took_s(self, run: str) -> float | None:
        """How long it took to measure this run, if the study did so."""
        return self._took_s.get(run)
