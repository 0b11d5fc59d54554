"""The times of layers in one framework's result: within the step, and each layer alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from deepstone.absent import Absent
from deepstone.report.figure import Value
from deepstone.report.reading import Node

PASSES: Final = ("forward", "backward")
_NOT_IN_STEP: Final = Absent("not timed within the step")

Time = Value | Absent


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerTimes:
    """`alone` has data and weight gradient apart where they were measured so, and backward where they were not."""

    name: str
    op: str
    in_step: tuple[tuple[str, Time], ...]
    alone: tuple[tuple[str, Time], ...]
    share: float | Absent

    @property
    def step_s(self) -> float | None:
        return total(time for _, time in self.in_step)

    @property
    def alone_s(self) -> float | None:
        return total(time for _, time in self.alone)

    @property
    def cost_s(self) -> float:
        return self.step_s or self.alone_s or 0.0

    @property
    def why_absent(self) -> str:
        return next((time.reason for _, time in (*self.in_step, *self.alone) if isinstance(time, Absent)), "")


def layer_times(result: Node) -> list[LayerTimes]:
    """Where layers were timed alone only, a result repeats those times as its own; they are not of the step."""
    in_step = result.has("sum_s")
    return [_layer(node, in_step=in_step) for node in result.nodes("layers")]


def total(times: Iterable[Time]) -> float | None:
    """The sum of what was measured; None when nothing was."""
    known = [time.middle for time in times if isinstance(time, Value)]
    return sum(known) if known else None


def _layer(node: Node, *, in_step: bool) -> LayerTimes:
    share = node.value("share")
    times = {name: node.value(f"{name}_s") for name in PASSES}
    return LayerTimes(
        name=node.text("name"),
        op=node.text("op", ""),
        in_step=tuple((name, time if in_step else _NOT_IN_STEP) for name, time in times.items()),
        alone=_alone(node.node("isolated")) if node.has("isolated") else (),
        share=share.middle if isinstance(share, Value) else share,
    )


def _alone(isolated: Node) -> tuple[tuple[str, Time], ...]:
    times = {name: isolated.value(f"{name}_s") for name in (*PASSES, "data", "weight")}
    apart = [(f"{name} gradient", times[name]) for name in ("data", "weight") if isinstance(times[name], Value)]
    return (("forward", times["forward"]), *(apart or [("backward", times["backward"])]))
