"""Communication between processes, as `deepstone comm` measures it: time and bandwidth over sizes of messages."""

from __future__ import annotations

from typing import ClassVar, Literal

from deepstone.absent import Absent
from deepstone.results.doubt import Doubt
from deepstone.results.parallel import Launcher, Wire
from deepstone.results.parts import AtLeast0, Number, OrAbsent, Part, Positive, SomeText
from deepstone.results.quantity import Quantity


class CommPoint(Part, frozen=True, kw_only=True):
    """One size. `algbw`: bytes over time; `busbw`: that times the factor of nccl-tests; both in bytes/s. `checked`: the
    result was compared with what it must be, before and after it was timed; a wrong one has no number. `rounds_s`: the
    median of every round, launch by launch."""

    bytes: Positive
    time_s: OrAbsent[Quantity]
    algbw: OrAbsent[Quantity]
    busbw: OrAbsent[Quantity]
    checked: bool
    rounds_s: list[list[AtLeast0]] = []

    @property
    def seconds(self) -> Quantity | None:
        return None if isinstance(self.time_s, Absent) else self.time_s


class FitSegment(Part, frozen=True, kw_only=True):
    """time = alpha + beta x bytes, from `from_bytes` up to `to_bytes`."""

    from_bytes: Positive
    to_bytes: Positive
    alpha_s: AtLeast0
    beta_s_per_byte: AtLeast0


class CommFit(Part, frozen=True, kw_only=True):
    """As few segments as describe the points. `residual`: root mean square of the relative errors; `worst`: the largest
    of them."""

    segments: list[FitSegment]
    residual: AtLeast0
    worst: AtLeast0


class CommWire(Wire, frozen=True, kw_only=True):
    """Of one operation of so many bytes."""

    bytes: Positive


class UnderLoad(Part, frozen=True, kw_only=True):
    """How many times longer a step takes beside transfers of so many bytes, and a transfer beside steps. `compute`: the
    network whose steps ran."""

    bytes: Positive
    compute: SomeText
    compute_slowdown: Quantity
    communication_slowdown: Quantity
    alone_step_s: Number
    alone_transfer_s: Number


class GradientBuckets(Part, frozen=True, kw_only=True):
    """The gradients of a model as its framework exchanges them in a step, in order, and the time of all of them."""

    bytes: list[Positive]
    sum_s: OrAbsent[Quantity]


class CommCurve(Part, frozen=True, kw_only=True):
    """`library`: what moves the data, as it names itself. `left_out`: why larger sizes are missing, if some are."""

    transport: SomeText
    operation: SomeText
    processes: Positive
    nodes: Positive
    framework: str = ""
    device: SomeText
    threads: Positive
    library: str
    launcher: Launcher
    points: list[CommPoint]
    fit: OrAbsent[CommFit]
    wire: OrAbsent[CommWire]
    left_out: str = ""
    under_load: OrAbsent[UnderLoad] | None = None
    buckets: GradientBuckets | None = None

    @property
    def is_checked(self) -> bool:
        return all(point.checked for point in self.points)


class TransportRatio(Part, frozen=True, kw_only=True):
    """Two transports, measured in turns. `what`: one operation of so many bytes, or all buckets of a step."""

    what: Literal["operation", "step"]
    operation: SomeText
    processes: Positive
    bytes: Positive
    a: SomeText
    b: SomeText
    time_ratio: Quantity
    verdict: Literal["a faster", "b faster", "no difference shown"]


class CommFailure(Part, frozen=True, kw_only=True):
    """Processes that could not be measured."""

    transport: SomeText
    processes: Positive
    outcome: SomeText
    reason: SomeText


class CommCurves(Part, frozen=True, kw_only=True):
    """`interval`: what the intervals of times include; ratios of transports are always across launches. `lacking`:
    operations that a transport does not have, where all were measured that there are."""

    KIND: ClassVar = "comm"

    curves: list[CommCurve]
    ratios: list[TransportRatio] = []
    launches: Positive
    interval: Literal["within process", "across launches"]
    failed: list[CommFailure] = []
    lacking: list[CommFailure] = []
    doubts: list[Doubt] = []

    @property
    def is_checked(self) -> bool:
        return all(curve.is_checked for curve in self.curves)
