"""Sameness of frameworks: the distance of each from the float64 reference, and its tolerance."""

from __future__ import annotations

import math

from deepstone.absent import Absent
from deepstone.results.parts import Count, Number, OrAbsent, Part, Positive


class Distance(Part, frozen=True, kw_only=True, rename={"error": "relative_error"}):
    """One array of one layer against the reference. `error` is absent if the array cannot be compared."""

    layer: str
    what: str
    error: OrAbsent[Number]
    tolerance: Number

    @staticmethod
    def of(*, layer: str, what: str, relative_error: float, tolerance: float) -> Distance:
        error = relative_error if math.isfinite(relative_error) else Absent("not finite, or of another shape")
        return Distance(layer=layer, what=what, error=error, tolerance=tolerance)

    @property
    def relative_error(self) -> float:
        """Return infinity if it is absent."""
        return math.inf if isinstance(self.error, Absent) else self.error

    @property
    def ok(self) -> bool:
        return self.relative_error <= self.tolerance

    @property
    def badness(self) -> float:
        return self.relative_error / self.tolerance

    def __str__(self) -> str:
        return f"layer {self.layer}, {self.what}: off by {self.relative_error:.2g}, allowed {self.tolerance:.2g}"


class LayersChecked(Part, frozen=True, kw_only=True):
    """The result of one framework over all layers. `worst`: of all arrays of all layers, relative to its tolerance.
    `first_disagreement`: in the disagreeing layer nearest to the network's input. `failure`: why it did not finish."""

    ok: bool
    precision: str  # of the run
    checked: Count  # layers
    worst: OrAbsent[Distance]
    first_disagreement: OrAbsent[Distance]
    failure: str | None = None

    @property
    def layers_agree(self) -> bool:
        return not self.failure and isinstance(self.first_disagreement, Absent) and self.checked > 0

    def why_not(self) -> str:
        """Describe the disagreement in one clause."""
        if self.failure:
            return self.failure
        first = self.first_disagreement
        return "no layer was checked" if isinstance(first, Absent) else str(first)


class Comparable(LayersChecked, frozen=True, kw_only=True):
    """Whether speeds may be compared: every layer, and one whole step as measured. `seeds`: those tried for the whole
    step; one within its bound is enough."""

    whole_step: OrAbsent[Distance]
    seeds: Positive

    def why_not(self) -> str:
        if not self.layers_agree:
            return super().why_not()
        return f"every layer alone agrees, but not the whole step: {self.whole_step}"


class SidesChecked(Part, frozen=True, kw_only=True):
    """The checks of the two sides of a comparison."""

    ok: bool
    a: Comparable
    b: Comparable


class Gap(Part, frozen=True, kw_only=True, rename={"error": "relative_error"}):
    """The array that is furthest off: shown, and not judged by a tolerance."""

    layer: str
    what: str
    error: OrAbsent[Number]

    @staticmethod
    def of(distance: Distance) -> Gap:
        return Gap(layer=distance.layer, what=distance.what, error=distance.error)

    @property
    def relative_error(self) -> float:
        return math.inf if isinstance(self.error, Absent) else self.error


class SchemeInFp32(Part, frozen=True, kw_only=True):
    """Judged by the first gradient. The order of a sum alone moves the updates of deep networks by half, so how far
    they are is shown."""

    ok: bool
    gradient: Distance
    update: Gap


class GlobalStatistics(Part, frozen=True, kw_only=True):
    """How far batch norm with the statistics of each part is from one with those of the whole batch, in one process."""

    gradient: Gap
    update: Gap


class SchemeSameness(Part, frozen=True, kw_only=True):
    """Several processes against one that does the same, in float64. `ok`: they are equal; never with gradients that are
    compressed with loss or applied as they come, whose distances are told all the same. `failure`: why it was not
    finished; `is_missing`: a launcher, a library or a device is; `is_unsupported`: the framework cannot. `fp32` and
    `global_statistics`: where they were asked for. `precision`: of the processes; where a library has no float64, one
    process in float64 and in fp32 tells how far apart fp32 may be."""

    ok: bool
    equivalent: bool
    gradient: OrAbsent[Distance]
    update: OrAbsent[Distance]
    replicas_equal: bool
    loss: list[Number]
    loss_of_one_process: list[Number]
    precision: str = "fp64"
    fp32: OrAbsent[SchemeInFp32] | None = None
    global_statistics: OrAbsent[GlobalStatistics] | None = None
    failure: str | None = None
    is_missing: bool = False
    is_unsupported: bool = False

    @staticmethod
    def failed(
        reason: str, *, equivalent: bool, is_missing: bool = False, is_unsupported: bool = False
    ) -> SchemeSameness:
        absent = Absent(reason)
        return SchemeSameness(
            ok=False,
            equivalent=equivalent,
            gradient=absent,
            update=absent,
            replicas_equal=False,
            loss=[],
            loss_of_one_process=[],
            failure=reason,
            is_missing=is_missing,
            is_unsupported=is_unsupported,
        )

    @property
    def is_wrong(self) -> bool:
        """Whether it should be the same and is not, or could not be checked."""
        return not self.ok and (self.equivalent or self.failure is not None)

    def why_not(self) -> str:
        """One clause about what is wrong."""
        if self.failure:
            return self.failure
        far = [each for each in (self.gradient, self.update) if not isinstance(each, Absent) and not each.ok]
        if far:
            return str(far[0])
        if isinstance(self.fp32, SchemeInFp32) and not self.fp32.ok:
            return f"in fp32: {self.fp32.gradient}"
        return "replicas differ" if not self.replicas_equal else "its gradients are not those of one process"


class AllSidesChecked(Part, frozen=True, kw_only=True):
    """The checks of more than two sides."""

    ok: bool
    sides: list[Comparable]
