"""How step time and speed change with the number of processes: the answer of `deepstone scale`."""

from __future__ import annotations

from typing import Literal

from deepstone.absent import Absent
from deepstone.results.parts import Command, Number, OrAbsent, Part, Positive, SomeText
from deepstone.results.quantity import Quantity


class StepParts(Part, frozen=True, kw_only=True):
    """What a step of a job is made of: phases of computing, the mean over processes; how long processes wait for each
    other, the mean over them; exposed communication."""

    step_s: Quantity
    data_s: OrAbsent[Quantity]
    forward_s: OrAbsent[Quantity]
    backward_s: OrAbsent[Quantity]
    update_s: OrAbsent[Quantity]
    waiting_s: OrAbsent[Quantity]
    communication_s: OrAbsent[Quantity]

    def items(self) -> list[tuple[str, Quantity | Absent]]:
        names = ("data", "forward", "backward", "update", "waiting", "communication")
        return [(name, getattr(self, f"{name}_s")) for name in names]


class ScalingBase(Part, frozen=True, kw_only=True):
    """The one process that others are compared with; its samples in a second, by round."""

    setup: str
    samples_per_s: list[Number]
    step: OrAbsent[StepParts] = Absent("not told")
    runs: list[str]


class ScalingEntry(Part, frozen=True, kw_only=True):
    """One number of processes. `step`: what a step is made of, in the round in the middle."""

    processes: Positive
    nodes: Positive
    batch: Positive
    samples_per_s: Quantity
    speedup: Quantity
    efficiency: Quantity
    exposed_s: OrAbsent[Quantity]
    step: OrAbsent[StepParts] = Absent("not told")
    doubts: list[str]
    runs: list[str]


class ScalingFailure(Part, frozen=True, kw_only=True):
    processes: Positive
    reason: str


class Scaling(Part, frozen=True, kw_only=True):
    """`mode`: whether the batch of the job or that of each process is the same at every number of processes."""

    schema: Literal[1]
    kind: Literal["scale"]
    model: SomeText
    mode: Literal["strong", "weak"]
    command: Command
    base: ScalingBase
    points: list[ScalingEntry]
    failed: list[ScalingFailure]
