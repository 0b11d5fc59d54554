"""What a worker replies, one type per request. `Conversation` parses each reply once, into one of these."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from msgspec import Meta

from deepstone.absent import Absent
from deepstone.results import codec
from deepstone.results.parts import Json, Number, OrAbsent, Part, Table
from deepstone.results.record import Effect
from deepstone.setups.effective import contradiction
from deepstone.setups.request import Request


class Reply(Part, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A worker may tell more than the controller reads."""


class Failed(Reply, frozen=True, kw_only=True):
    outcome: Literal["unsupported", "missing", "oom", "crashed"]
    reason: str


class Hello(Reply, frozen=True, kw_only=True):
    """`framework`: what it tells of itself, in its own words; `version` at least."""

    pid: int
    python: str
    framework: Table[Json]
    import_s: float


class Rendezvous(Reply, frozen=True, kw_only=True):
    """Where rank 0 waits for the others."""

    port: int


class Joined(Reply, frozen=True, kw_only=True):
    """How many processes the library itself counts, and which one it is."""

    world: int
    transport: str


class Observed(Reply, frozen=True, kw_only=True):
    """What is in effect, by axis."""

    effective: Table[Effect]

    def value(self, axis: str) -> str:
        return str(self.effective[axis].value)

    def contradiction(self, request: Request) -> str | None:
        """How what is in effect is not what was asked for."""
        return contradiction(request, self.effective)


class KnownDetails(Reply, frozen=True, kw_only=True):
    """Those of a framework's details that decide something. `gpu_uuid`: which board it is, since the framework's
    numbering and the driver's need not agree. `onednn_by_layer`: what of oneDNN ran, by layer. `bucket_bytes`: of the
    gradients that processes exchange, in their order."""

    gpu_uuid: str | None = None
    onednn_by_layer: tuple[tuple[str, list[str]], ...] = ()
    bucket_bytes: tuple[int, ...] = ()


class Prepared(Observed, frozen=True, kw_only=True, dict=True, rename={"told_phases": "phases"}):
    """`details`: what else the framework tells of the first step, in its own words."""

    build_s: float
    first_step_s: float
    details: Table[Json]
    told_phases: tuple[str, ...] | bool

    @cached_property
    def known(self) -> KnownDetails:
        return codec.convert(self.details, KnownDetails)

    @property
    def phases(self) -> tuple[str, ...] | None:
        """None: a step is one program, phases come by difference."""
        return None if isinstance(self.told_phases, bool) else self.told_phases


class BlockTimes(Reply, frozen=True, kw_only=True):
    start_s: float
    steps_per_sample: int
    step_s: Annotated[list[float], Meta(min_length=1)]
    enqueue_s: float
    total_s: float

    @property
    def steps(self) -> int:
        return self.steps_per_sample * len(self.step_s)


class PhaseTimes(Reply, frozen=True, kw_only=True):
    phase_s: Table[list[float]]


class Losses(Reply, frozen=True, kw_only=True):
    """As text, since JSON has no NaN."""

    losses: Annotated[list[str], Meta(min_length=1)]

    def __post_init__(self) -> None:
        tuple(map(float, self.losses))  # refuses what is no number

    @property
    def numbers(self) -> list[float]:
        return [float(text) for text in self.losses]


class DumpedFiles(Reply, frozen=True, kw_only=True):
    """Paths by `layer/name`."""

    files: Table[str]


class SampledValues(Reply, frozen=True, kw_only=True):
    """All arrays are in one file, one after the other."""

    names: list[str]
    sizes: list[int]
    path: str


class LayerFiles(Reply, frozen=True, kw_only=True):
    """Of each array its kind (`output`, `input`, `parameter`, `buffer`), its name and its path."""

    files: list[tuple[str, str, str]]


class ModulePart(Reply, frozen=True, kw_only=True):
    """Of a user's own module: a submodule, or a function that one calls. `path`: of the submodule, or of the caller."""

    name: str
    op: str
    path: str
    parameters: int
    flops: Table[OrAbsent[int]]


class InPlaceTimes(Reply, frozen=True, kw_only=True, dict=True, rename={"other_s": "other", "passes": "layers"}):
    """What layers took inside whole steps; each list has one entry per step."""

    method: str
    rule: str
    total_s: list[float]
    data_s: list[float]
    update_s: list[float]
    gaps_s: list[float]
    other_s: Table[list[float]]
    passes: list[tuple[str, str, list[float]]]
    parts: tuple[ModulePart, ...] = ()
    containers: tuple[tuple[str, str], ...] = ()  # path and class of a user's submodules that have parts

    @cached_property
    def layers_s(self) -> dict[tuple[str, str], list[float]]:
        """By layer and "forward" or "backward"."""
        return {(name, direction): times for name, direction, times in self.passes}


class IsolatedPrograms(Reply, frozen=True, kw_only=True, rename={"names": "programs"}):
    """Of one isolated layer. `beside`: what each does that a step does not; mostly nothing."""

    names: tuple[str, ...]
    beside: str


class ConvolutionFacts(Reply, frozen=True, kw_only=True, rename={"formulas": "algorithms"}):
    """What can be tried on one pass of a convolution, and how it is set up. `formulas`: of each algorithm its name, and
    the formula by which its operations are counted."""

    formulas: list[tuple[str, str]]
    picked: OrAbsent[str]
    device: str
    precision: str
    layout: str


class Attempt(Reply, frozen=True, kw_only=True):
    """What is known of an algorithm that has run once. `implementation`: as the library calls it, where it tells."""

    workspace_bytes: OrAbsent[int] | None = None
    relative_error: OrAbsent[Number] | None = None
    implementation: str = ""


class MemoryTold(Reply, frozen=True, kw_only=True):
    memory: Table[OrAbsent[int]]

    def first_known(self, *names: str) -> int | Absent:
        """The first of these that is known; where none is, why not the last."""
        told = [self.memory.get(name, Absent(f"the worker does not tell {name}")) for name in names]
        return next((value for value in told if not isinstance(value, Absent)), told[-1])


class MemoryPeak(MemoryTold, frozen=True, kw_only=True):
    """The most memory that a few steps had; `available_bytes` is what they could have had."""

    available_bytes: OrAbsent[int]

    @property
    def step_bytes(self) -> int | Absent:
        """What the step took by itself: on its device, or on the host beyond what there was before the build."""
        return self.first_known("device_allocated_bytes", "host_growth_bytes")

    @property
    def whole_bytes(self) -> int | Absent:
        """What counts against a limit: on the host, everything that the process has."""
        return self.first_known("device_allocated_bytes", "host_peak_bytes")


class MemoryOfLayer(Reply, frozen=True, kw_only=True):
    """`kept_bytes`: what the layer leaves for backward. `workspace_bytes`: what it took, and gave back.

    The others are told of the parts of a user's own module, which no graph knows.
    """

    kept_bytes: OrAbsent[int]
    workspace_bytes: OrAbsent[int]
    op: str = ""
    parameters_bytes: int = 0
    gradients_bytes: int = 0
    optimizer_bytes: int = 0


class MemoryByLayer(Reply, frozen=True, kw_only=True):
    layers: list[tuple[str, MemoryOfLayer]]
