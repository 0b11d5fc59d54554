"""Studies for tests: small tables, run on the scripted backend, and a progress that remembers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from deepstone.runner.job import Machine
from deepstone.store.store import Store
from deepstone.studies.perform import Performed
from deepstone.studies.plan import Plan, make_plan
from deepstone.studies.read import Source, read_table
from deepstone.studies.run import run_study
from deepstone.studies.state import State, TaskStatus
from deepstone.studies.study import Study
from deepstone.studies.study_run import Call, StudyRun

_USUAL = {"model": "cifarnet", "framework": "fake"}
COMMAND = ("deepstone", "study", "test.toml")


@cache
def machine() -> Machine:
    return Machine.here()


def study(*jobs: dict[str, Any], **top: Any) -> Study:
    """Jobs are those of cifarnet on the scripted backend, as far as they do not say otherwise; two short rounds."""
    sweeps = [{**_USUAL, **each} if each.get("measure") != "peaks" else each for each in jobs or ({},)]
    table = {"effort": {"repetitions": 2, "budget": 0.05, "target": 50}, "jobs": sweeps, **top}
    return read_table(table, Source(shown="test"), name="test")


def planned(*jobs: dict[str, Any], **top: Any) -> Plan:
    return make_plan(study(*jobs, **top), machine())


@dataclass
class Remembering:
    """What was measured, in the order in which it was."""

    begun: list[TaskStatus] = field(default_factory=list)
    waits: int = 0

    def begin(self, status: TaskStatus) -> None:
        self.begun.append(status)

    def advance(self, stage: str, share: float) -> None: ...

    def end(self, status: TaskStatus, performed: Performed | None) -> None: ...

    def waiting(self, tasks: int) -> None:
        self.waits += 1

    @property
    def titles(self) -> list[str]:
        return [f"{status.task.title} #{status.task.round}" for status in self.begun]


def call(**settings: Any) -> Call:
    return Call(command=COMMAND, resume=" ".join(COMMAND), **settings)


def performed(plan: Plan, store: Store, progress: Remembering | None = None, **settings: Any) -> State:
    """The state after a whole call."""
    this = call(**settings)
    return run_study(StudyRun(plan, store, this), store, this, progress or Remembering())


def by_state(state: State) -> dict[str, int]:
    counts: dict[str, int] = {}
    for status in state.tasks:
        counts[status.state] = counts.get(status.state, 0) + 1
    return counts
