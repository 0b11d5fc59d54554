"""The result of `deepstone layers` in one framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Literal

from deepstone.absent import Absent
from deepstone.results.doubt import Doubt
from deepstone.results.parts import Number, OrAbsent, Part, Table
from deepstone.results.quantity import Quantity


class Passes(Part, frozen=True, kw_only=True):
    forward: int
    backward: int


class PassRates(Part, frozen=True, kw_only=True):
    forward: OrAbsent[Number]
    backward: OrAbsent[Number]


class IsolatedLayer(Part, frozen=True, kw_only=True):
    """An isolated layer, timed on its real shapes. `beside`: overhead included in each time."""

    forward_s: OrAbsent[Quantity]
    backward_s: OrAbsent[Quantity]
    data_s: OrAbsent[Quantity]
    weight_s: OrAbsent[Quantity]
    by_difference: bool
    beside: str | None = None


class LayerBound(Part, frozen=True, kw_only=True):
    """The shortest time that the machine's ceilings allow, and the share of it that was reached."""

    forward_s: Number
    backward_s: Number
    by: Literal["compute", "memory"]
    share: OrAbsent[Number]


class LayerRow(Part, frozen=True, kw_only=True):
    name: str
    op: str
    shape: OrAbsent[list[int]]
    parameters: OrAbsent[int]
    flops: OrAbsent[Passes]
    bytes: OrAbsent[Passes]
    forward_s: OrAbsent[Quantity]
    backward_s: OrAbsent[Quantity]
    flops_per_s: OrAbsent[PassRates]
    isolated: OrAbsent[IsolatedLayer]
    bound: OrAbsent[LayerBound]
    primitives: list[str]
    share: Number


# Groups of operations for readers, "convolutions take x %", in the order of tables.
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "convolutions": ("conv",),
    "dense layers": ("dense",),
    "batch norms": ("batch_norm",),
    "response norms": ("lrn",),
    "activations": ("relu", "clip", "sigmoid", "tanh", "silu", "hard_sigmoid", "hard_swish", "dropout"),
    "pools": ("max_pool", "average_pool", "global_pool"),
    "sums and joins": ("add", "multiply", "concat", "slice", "shuffle", "flatten"),
    "loss": ("softmax_cross_entropy",),
    "modules": ("module",),
}


class LayerGroup(Part, frozen=True, kw_only=True):
    """Layers that a reader calls by one name. `flops`: of groups of a user's own module; absent where one has none."""

    name: str
    layers: int
    forward_s: Number
    backward_s: Number
    share: Number
    flops: OrAbsent[Passes] | None = None

    @staticmethod
    def of(name: str, rows: Sequence[LayerRow], flops: Passes | Absent | None = None) -> LayerGroup:
        return LayerGroup(
            name=name,
            layers=len(rows),
            forward_s=sum(known_s(row.forward_s) for row in rows),
            backward_s=sum(known_s(row.backward_s) for row in rows),
            share=sum(row.share for row in rows),
            flops=flops,
        )


def known_s(time: Quantity | Absent) -> float:
    """Return the median; what was not timed adds nothing to a sum."""
    return 0.0 if isinstance(time, Absent) else time.median


class OtherPart(Part, frozen=True, kw_only=True):
    """A part of the step that is not a layer."""

    name: str
    s: Quantity


class LayerPeaks(Part, frozen=True, kw_only=True):
    """The ceilings for bounds."""

    device: str
    flops_per_s: Table[Quantity]
    bytes_per_s: Table[OrAbsent[Quantity]]
    measured_with: str
    measured_at: str


class Kernel(Part, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A kernel, or a call of the runtime, as the framework's own profiler names it."""

    name: str
    kind: str
    count: int
    total_s: Number
    layers: list[str] | None = None


class KernelTrace(Part, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The result of the framework's own profiler over some steps."""

    steps: int
    kernels: list[Kernel]
    calls: OrAbsent[list[Kernel]] | None = None
    busy_s: OrAbsent[Number] | None = None
    span_s: OrAbsent[Number] | None = None
    idle: OrAbsent[Table[Number]] | None = None


class LayerTable(Part, frozen=True, kw_only=True):
    """`isolated_sum_s` and `fusion_saved_s` are bare numbers in early findings, and some parts are missing there.

    Of a user's own module, `layers` are its innermost submodules and the functions() that are called outside of these,
    and `groups` their classes. `blocks` are the same by where they are in it: each is in one. `classes` are those of
    submodules with others inside, with all of their time: one may be in another.
    """

    KIND: ClassVar = "layers"

    method: str
    rule: str
    step_s: Quantity
    traced_step_s: OrAbsent[Quantity]
    traced_time_ratio: OrAbsent[Quantity] | None = None
    sum_s: OrAbsent[Quantity]
    layers_time_ratio: OrAbsent[Quantity] | None = None
    data_s: OrAbsent[Quantity]
    update_s: OrAbsent[Quantity]
    gaps_s: OrAbsent[Quantity]
    together_s: OrAbsent[Quantity] | None = None
    explained: OrAbsent[Quantity]
    other: list[OtherPart]
    isolated_sum_s: OrAbsent[Quantity | Number]
    fusion_saved_s: OrAbsent[Quantity | Number]
    layers: list[LayerRow]
    groups: list[LayerGroup]
    blocks: list[LayerGroup] | None = None
    classes: list[LayerGroup] | None = None
    peaks: OrAbsent[LayerPeaks]
    kernels: OrAbsent[KernelTrace]
    doubts: list[Doubt]
