"""The results of the checks: per framework, and whether all compute the same."""

from __future__ import annotations

import math

import msgspec
from msgspec import field

from deepstone.absent import Absent
from deepstone.checks.layers import LayerCheck
from deepstone.checks.whole_step import ReferenceSteps, Sensitivity
from deepstone.results.parts import Json
from deepstone.results.sameness import Distance


class FrameworkSameness(msgspec.Struct, kw_only=True):
    """The results of the checks for one framework."""

    layers: LayerCheck | None = None
    float64: list[Distance] | Absent = field(default_factory=lambda: Absent("not checked"))
    measured: Distance | Absent = field(default_factory=lambda: Absent("not checked"))
    seeds: list[Distance] = field(default_factory=list[Distance])  # `measured` with each seed, if several were tried
    losses: list[float] = field(default_factory=list[float])
    failure: str = ""

    @property
    def beyond_bound_as_a_whole_only(self) -> bool:
        """Whether only the whole measured step disagrees, although every layer agrees."""
        agrees = not self.failure and self.layers is not None and self.layers.ok
        return agrees and isinstance(self.measured, Distance) and not self.measured.ok

    @property
    def beyond_bound_at_the_end_only(self) -> bool:
        """Whether only the losses in float64 disagree, although every layer and gradient agrees."""
        if self.failure or self.layers is None or not self.layers.ok or isinstance(self.float64, Absent):
            return False
        *others, last = self.float64
        return not last.ok and all(distance.ok for distance in others)

    def try_seed(self, distance: Distance) -> None:
        """Add the whole step of another seed, with its own bound; the best of all seeds counts."""
        assert isinstance(self.measured, Distance)
        self.seeds = [*(self.seeds or [self.measured]), distance]
        self.measured = min(self.seeds, key=lambda each: each.badness)

    @property
    def distances(self) -> list[Distance]:
        found = [] if self.layers is None or self.layers.worst is None else [self.layers.worst]
        found += [] if isinstance(self.float64, Absent) else self.float64
        return found + ([] if isinstance(self.measured, Absent) else [self.measured])

    @property
    def worst(self) -> Distance | None:
        return max(self.distances, key=lambda distance: distance.badness, default=None)

    @property
    def ok(self) -> bool:
        layers_agree = self.layers is not None and self.layers.ok
        return not self.failure and layers_agree and all(distance.ok for distance in self.distances)

    @property
    def why_not(self) -> str:
        if self.failure:
            return self.failure
        if self.layers is not None and not self.layers.ok:
            return self.layers.result.why_not()
        return "; ".join(str(distance) for distance in self.distances if not distance.ok)

    def to_json(self) -> dict[str, Json]:
        nothing = Absent(self.failure or "nothing was compared")
        found: dict[str, Json] = msgspec.to_builtins(
            {
                "ok": self.ok,
                "loss": [loss if math.isfinite(loss) else Absent(str(loss)) for loss in self.losses],
                "worst": self.worst or nothing,
                "layers": self.layers.result if self.layers else nothing,
                "float64": self.float64,
                "measured": self.measured,
                "seeds": self.seeds,
            }
        )
        return {**found, "failure": self.failure} if self.failure else found


class Sameness(msgspec.Struct, frozen=True, kw_only=True):
    reference: ReferenceSteps
    frameworks: dict[str, FrameworkSameness]
    sensitivity: Sensitivity | None = None  # measured only if a loss in float64 disagrees

    @property
    def ok(self) -> bool:
        return bool(self.frameworks) and all(found.ok for found in self.frameworks.values())
