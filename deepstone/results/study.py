"""The state of a study: the status of every task and its runs.

waiting ──▶ done | failed            measured; a run or finding is named
        ──▶ pruned                   it cannot succeed, and `why` says so
        ──▶ left out                 there was no time for it; the next call takes it up
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from deepstone.absent import Absent
from deepstone.results.parts import Json, Number, OrAbsent, Part, Table, Value

TaskState: TypeAlias = Literal["waiting", "done", "failed", "pruned", "left out"]
STATES: Final[tuple[TaskState, ...]] = ("waiting", "done", "failed", "pruned", "left out")

NOT_MEASURED: Final = Absent("this study did not measure it")
NOT_FINISHED: Final = Absent("not finished")


class StudyTask(Part, frozen=True, kw_only=True, forbid_unknown_fields=False, omit_defaults=False):
    """`runs`: ids of the run or finding that settled it. `changed`: values that differ from the base of its sweep."""

    id: str = ""
    kind: str = "run"
    title: str
    model: str = ""
    round: int = 1
    state: TaskState = "done"
    why: str = ""
    runs: list[str] = []
    priority: int = 0
    estimate_s: Number = 0.0
    estimate_from: str = ""
    took_s: OrAbsent[Number] = NOT_MEASURED
    sweep: int = 0
    changed: Table[Value] = {}
    command: list[str] = []


class StudyState(Part, frozen=True, kw_only=True, forbid_unknown_fields=False, omit_defaults=False):
    """`base`: the first setup of the study. `figures`: as in the study file. `sameness`: by network and framework,
    whether it computes what the graph defines. `addable`: frameworks that the study would also measure if they were
    installed."""

    schema: Literal[1] = 1
    kind: Literal["study"] = "study"
    name: str
    title: str = ""
    description: str = ""
    command: list[str] = []
    resume: str = ""
    started_at: str = ""
    finished_at: OrAbsent[str] = NOT_FINISHED
    tasks: list[StudyTask]
    base: Table[Value] = {}
    figures: list[dict[str, Json]] = []
    sameness: Table[Table[bool]] = {}
    addable: list[str] = []
