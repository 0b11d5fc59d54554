"""A task is one measurement of a study: a run of a job in one round, or a finding about a job.

This module also has the status of a task, the state of a study and its earlier state. `results.study` has the stored
forms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.results.identity import task_id
from deepstone.results.parts import Json
from deepstone.results.study import NOT_MEASURED, StudyState, StudyTask, TaskState
from deepstone.runner.job import Job
from deepstone.setups.axes import Value
from deepstone.studies.study import Effort, Measure

# The digits of a priority, from the left: tier, round, number of changed axes.
PER_TIER: Final = 10_000
PER_ROUND: Final = 10


class Task(Struct, frozen=True, kw_only=True):
    """`id` is the job's id for a run; for another task it is made of its fields in the same way."""

    id: str
    kind: Measure
    job: Job
    round: int
    tier: int
    number: int  # its position among the tasks of the study file
    sweep: int  # which [[jobs]] of the study, from 0
    given: Mapping[str, Value]  # the axes that the study names; the others have their defaults
    changed: Mapping[str, Value]  # values that differ from the sweep's base, the first value of each list
    effort: Effort
    budget_s: float
    method: str  # of layers
    setup: str  # the same in all rounds
    setup_but_batch: str  # the same for all rounds and batches
    hopeless: str = ""  # why it cannot run, as far as is known without trying
    missing: bool = False  # it cannot run because something is not installed

    @property
    def model(self) -> str:
        return "" if self.kind == "peaks" else self.job.model.name

    @property
    def command(self) -> tuple[str, ...]:
        return self.job.command

    @property
    def priority(self) -> int:
        """Tasks with a lower number come first if time is short."""
        return self.tier * PER_TIER + (self.round - 1) * PER_ROUND + min(len(self.changed), PER_ROUND - 1)

    @property
    def title(self) -> str:
        """Return a readable name: the measure, and every axis that the study names, also at its default."""
        if self.kind == "peaks":
            return f"peaks of {self.job.request['device']} with {self.job.environment.name}"
        what = () if self.kind == "run" else (self.kind,)
        return " ".join((*what, self.model, *(f"{axis}={value}" for axis, value in self.given.items())))


def names_of(kind: Measure, job: Job, method: str) -> tuple[str, str, str]:
    """Return the ids of a task, of its setup, and of its setup without the batch."""
    identity = job.identity
    method = method if kind == "layers" else ""
    requested = {axis: value for axis, value in identity.requested.items() if axis != "batch"}
    any_round = replace(identity, repetition=0)
    any_batch = replace(any_round, workload=replace(identity.workload, batch=0), requested=requested)
    return (
        job.id if kind == "run" else task_id(kind, identity, method),
        task_id(kind, any_round, method),
        task_id(kind, any_batch, method),
    )


class TaskStatus(Struct, kw_only=True):
    """The status of one task."""

    task: Task
    state: TaskState = "waiting"
    why: str = ""
    runs: tuple[str, ...] = ()
    estimate_s: float = 0.0
    estimate_from: str = ""
    took_s: float | None = None  # None: not measured by this study

    @property
    def is_settled(self) -> bool:
        """Whether a call that resumes the study skips it."""
        return self.state in ("done", "failed", "pruned")

    def settle(self, state: TaskState, *, why: str = "", runs: tuple[str, ...] = ()) -> None:
        self.state, self.why, self.runs = state, why, runs

    def kept(self) -> StudyTask:
        return StudyTask.like(
            self.task,
            state=self.state,
            why=self.why,
            runs=list(self.runs),
            estimate_s=self.estimate_s,
            estimate_from=self.estimate_from,
            took_s=NOT_MEASURED if self.took_s is None else self.took_s,
            command=list(self.task.command),
        )


class State(Struct, kw_only=True):
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
    addable: Sequence[str] = ()  # frameworks that it would also measure if they were installed
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
    """`is_unfinished`: the same command was interrupted, and this call resumes it."""

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
        """Return how long this run took to measure, if the study measured it."""
        return self._took_s.get(run)
