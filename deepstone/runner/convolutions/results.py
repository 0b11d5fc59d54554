"""What the convolution lab finds, filled as it comes, so that a crash or an interrupt loses nothing found before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from deepstone.absent import Absent
from deepstone.algorithms.problem import Operations, Pass, Problem
from deepstone.measure.doubts import RoundTrip
from deepstone.measure.statistics import Quantity
from deepstone.results.doubt import Doubt
from deepstone.runner.conversation import ConvolutionFacts, Hello
from deepstone.runner.gpu_around import GpuAround


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """One algorithm on one pass of one convolution."""

    algorithm: str
    direction: Pass
    kind: Literal["timed", "reference"]
    time: Quantity | Absent
    workspace_bytes: int | Absent
    operations: Operations | Absent
    formula: str  # by which operations were counted
    relative_error: float | Absent
    picked: bool = False
    implementation: str = ""  # as the library calls it, where it tells
    doubt: Doubt | None = None

    def to_json(self) -> dict[str, Any]:
        counted = self.operations
        return {
            "algorithm": self.algorithm,
            "pass": self.direction,
            "kind": self.kind,
            "picked": self.picked,
            "time_s": self.time.to_json(),
            "workspace_bytes": self.workspace_bytes,
            "flops": counted if isinstance(counted, Absent) else counted.flops,
            "transform_flops": counted if isinstance(counted, Absent) else counted.transforms,
            "formula": self.formula,
            "relative_error": self.relative_error,
            **({"implementation": self.implementation} if self.implementation else {}),
            **({"doubts": [self.doubt.to_json()]} if self.doubt is not None else {}),
        }


@dataclass(kw_only=True, slots=True)
class Convolution:
    """One convolution, measured once for all layers that are equal."""

    problem: Problem
    layers: tuple[str, ...]  # the first of them was measured
    tried: list[Tried] = field(default_factory=list[Tried])
    failures: dict[Pass, str] = field(default_factory=dict[Pass, str])  # of whole passes

    @property
    def name(self) -> str:
        return self.layers[0]

    def timed(self, direction: Pass) -> dict[str, Quantity]:
        return {
            each.algorithm: each.time
            for each in self.tried
            if each.direction == direction and isinstance(each.time, Quantity)
        }

    def picked(self, direction: Pass) -> str:
        """What the library picks by itself, or nothing where it does not say."""
        picks = (each.algorithm for each in self.tried if each.direction == direction and each.picked)
        return next(picks, "")


@dataclass(kw_only=True, slots=True)
class Lab:
    """Everything about one model with one batch."""

    started_at: str
    hello: Hello | None = None
    facts: ConvolutionFacts | None = None
    convolutions: list[Convolution] = field(default_factory=list[Convolution])
    gpu: GpuAround = field(default_factory=GpuAround)
    round_trips: list[RoundTrip] = field(default_factory=list[RoundTrip])

    @property
    def is_empty(self) -> bool:
        return not any(each.tried or each.failures for each in self.convolutions)

    @property
    def failures(self) -> list[str]:
        return [
            f"{each.name}, {direction}: {reason}"
            for each in self.convolutions
            for direction, reason in each.failures.items()
        ]
