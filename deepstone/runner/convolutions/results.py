"""Results of the convolution lab. The lab fills them step by step, so a crash or interrupt loses no earlier result."""

from __future__ import annotations

from msgspec import Struct, field

from deepstone.algorithms.problem import Pass, Problem
from deepstone.measure.doubts import RoundTrip
from deepstone.results.convolutions import Tried
from deepstone.results.quantity import Quantity
from deepstone.runner.gpu_around import GpuAround
from deepstone.runner.replies import ConvolutionFacts, Hello


class Convolution(Struct, kw_only=True):
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
            each.algorithm: each.time_s
            for each in self.tried
            if each.direction == direction and isinstance(each.time_s, Quantity)
        }

    def picked(self, direction: Pass) -> str:
        """Return the algorithm that the library picks, or an empty text if the library does not report it."""
        picks = (each.algorithm for each in self.tried if each.direction == direction and each.picked)
        return next(picks, "")


class Lab(Struct, kw_only=True):
    """All results for one model and one batch."""

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
