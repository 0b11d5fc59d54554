"""One thing that a study measures: a job in one round, or something else that is found out about a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from deepstone.results.identity import task_id
from deepstone.runner.job import Job
from deepstone.setups.axes import Value
from deepstone.studies.study import Effort, Measure

# So that a priority tells, read from the left: tier, round, axes changed.
PER_TIER: Final = 10_000
PER_ROUND: Final = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """`id` is the job's for a run; that of any other task is made of what it is in the same way."""

    id: str
    kind: Measure
    job: Job
    round: int
    tier: int
    number: int  # its place among the tasks, as the study wrote them
    sweep: int  # which [[jobs]] of the study, from 0
    given: Mapping[str, Value]  # the axes that the study names; the others have their defaults
    changed: Mapping[str, Value]  # what differs from the sweep's base: the first value of each list
    effort: Effort
    budget_s: float
    method: str  # of layers
    setup: str  # the same for all rounds of it
    setup_but_batch: str  # the same for all rounds and batches of it
    hopeless: str = ""  # why it cannot run, as far as one can know without trying
    missing: bool = False  # it is hopeless because something is not installed

    @property
    def model(self) -> str:
        return "" if self.kind == "peaks" else self.job.model.name

    @property
    def command(self) -> tuple[str, ...]:
        return self.job.command

    @property
    def priority(self) -> int:
        """The lower, the sooner when time is short."""
        return self.tier * PER_TIER + (self.round - 1) * PER_ROUND + min(len(self.changed), PER_ROUND - 1)

    @property
    def title(self) -> str:
        """What a person calls it: what is measured, and every axis that the study names, also at its default."""
        if self.kind == "peaks":
            return f"peaks of {self.job.request['device']} with {self.job.environment.name}"
        what = () if self.kind == "run" else (self.kind,)
        return " ".join((*what, self.model, *(f"{axis}={value}" for axis, value in self.given.items())))


def names_of(kind: Measure, job: Job, method: str) -> tuple[str, str, str]:
    """A task's id, that of its setup, and that of its setup whatever the batch."""
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
