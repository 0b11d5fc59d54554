"""Replies of a worker, one type per request. `Conversation` parses each reply once, into one of these."""

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
    """A reply may have more fields than the controller reads."""


class Failed(Reply, frozen=True, kw_only=True):
    outcome: Literal["unsupported", "missing", "oom", "crashed"]
    reason: str


class Hello(Reply, frozen=True, kw_only=True):
    """`framework`: the framework's own description of itself; `version` at least. A worker in another language than
    Python has `runtime` in place of `python`: what runs it, and its version. `preload_s`: what the worker imported
    beyond the framework before it had a job; `build` need not."""

    pid: int
    python: str = ""
    runtime: str = ""
    framework: Table[Json]
    import_s: float
    preload_s: float = 0.0


class Rendezvous(Reply, frozen=True, kw_only=True):
    """Where a rank waits for the others; 0 if nobody looks for it."""

    port: int


class Buckets(Reply, frozen=True, kw_only=True):
    """Bytes of each bucket of gradients, in the order in which they are exchanged."""

    bytes: list[int]


class TimelinePrograms(Reply, frozen=True, kw_only=True):
    """Which steps can tell when their parts begin and end; absent where none can."""

    programs: OrAbsent[tuple[str, ...]]


class StageReply(Reply, frozen=True, kw_only=True):
    """Consecutive layers that a process of a pipeline computes."""

    stage: int
    layers: int
    first: str
    last: str
    share: float
    method: str


class Assignment(Reply, frozen=True, kw_only=True):
    """What a process has, and to which ranks it must send how many bytes in a step."""

    stages: list[StageReply]
    sends: list[tuple[int, float]]


class TracedStep(Reply, frozen=True, kw_only=True, array_like=True):
    """When a step and its parts began and ended on one rank. A span: kind, begin, end, bytes."""

    begin_s: float
    end_s: float
    spans: list[tuple[str, float, float, int]]


class TracedSteps(Reply, frozen=True, kw_only=True):
    steps: list[TracedStep]


class LoggedTimes(Reply, frozen=True, kw_only=True):
    """What the framework itself logs of some steps, by name."""

    logged: OrAbsent[Table[list[float]]]


class Network(Reply, frozen=True, kw_only=True):
    """Bytes that each network interface of the worker's host has ever sent."""

    sent_bytes: Table[int]


class Transferred(Reply, frozen=True, kw_only=True):
    """`program`: what a block calls this transfer. `wrong`: what is wrong with its result; nothing if it is right.
    `unsupported`: why the framework has no such operation, in place of these."""

    program: str = ""
    wrong: str = ""
    unsupported: str = ""


class Beside(Reply, frozen=True, kw_only=True):
    """How long each transfer and each step took, while both ran at the same time; or why the framework cannot do it."""

    transfer_s: tuple[float, ...] = ()
    step_s: tuple[float, ...] = ()
    unsupported: str = ""


class Joined(Reply, frozen=True, kw_only=True):
    """How many processes the library itself counts, which of them this one is, and what the library calls itself."""

    world: int
    transport: str
    rank: int
    library: str = ""


class ClockShows(Reply, frozen=True, kw_only=True):
    """What the clock of the worker's timestamps shows."""

    clock_s: float


class Observed(Reply, frozen=True, kw_only=True):
    """The effective setup, by axis."""

    effective: Table[Effect]

    def value(self, axis: str) -> str:
        return str(self.effective[axis].value)

    def contradiction(self, request: Request) -> str | None:
        """Describe how the effective setup contradicts the requested one; None if it does not."""
        return contradiction(request, self.effective)


class KnownDetails(Reply, frozen=True, kw_only=True):
    """Those of a framework's details that decide something. `gpu_uuid`: which board it is, since the framework's
    numbering and the driver's need not agree. `onednn_by_layer`: what of oneDNN ran, by layer."""

    gpu_uuid: str | None = None
    onednn_by_layer: tuple[tuple[str, list[str]], ...] = ()


class Prepared(Observed, frozen=True, kw_only=True, dict=True, rename={"reported_phases": "phases"}):
    """`details`: further facts about the first step, in the framework's own terms."""

    build_s: float
    first_step_s: float
    details: Table[Json]
    reported_phases: tuple[str, ...] | bool

    @cached_property
    def known(self) -> KnownDetails:
        return codec.convert(self.details, KnownDetails)

    @property
    def phases(self) -> tuple[str, ...] | None:
        """Return None if a step is one program; then phases are found by difference."""
        return None if isinstance(self.reported_phases, bool) else self.reported_phases


class BlockTimes(Reply, frozen=True, kw_only=True):
    start_s: float
    steps_per_sample: int
    step_s: Annotated[list[float], Meta(min_length=1)]
    enqueue_s: float
    total_s: float

    @property
    def steps(self) -> int:
        return self.steps_per_sample * len(self.step_s)

    @property
    def spent_s(self) -> float:
        """How much of a budget it took."""
        return self.total_s


class PhaseTimes(Reply, frozen=True, kw_only=True):
    phase_s: Table[list[float]]


class Losses(Reply, frozen=True, kw_only=True):
    """As text, since JSON has no NaN."""

    losses: Annotated[list[str], Meta(min_length=1)]

    def __post_init__(self) -> None:
        tuple(map(float, self.losses))  # raises if one is not a number

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
    """For each array: its kind (`output`, `input`, `parameter`, `buffer`), name and path."""

    files: list[tuple[str, str, str]]


class ModulePart(Reply, frozen=True, kw_only=True):
    """Of a user's own module: a submodule, or a function that one calls. `path`: of the submodule, or of the caller."""

    name: str
    op: str
    path: str
    parameters: int
    flops: Table[OrAbsent[int]]


class InPlaceTimes(Reply, frozen=True, kw_only=True, dict=True, rename={"other_s": "other", "passes": "layers"}):
    """Times of layers inside whole steps; each list has one entry per step."""

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
        """Return times by layer and pass ("forward" or "backward")."""
        return {(name, direction): times for name, direction, times in self.passes}


class IsolatedPrograms(Reply, frozen=True, kw_only=True, rename={"names": "programs"}):
    """The programs of one isolated layer. `beside`: overhead included in each time; usually empty."""

    names: tuple[str, ...]
    beside: str


class ConvolutionFacts(Reply, frozen=True, kw_only=True, rename={"formulas": "algorithms"}):
    """The algorithms for one pass of a convolution, and its setup. `formulas`: name and operation-count formula of each
    algorithm."""

    formulas: list[tuple[str, str]]
    picked: OrAbsent[str]
    device: str
    precision: str
    layout: str


class Attempt(Reply, frozen=True, kw_only=True):
    """The result of running an algorithm once. `implementation`: the library's name for it, if the library reports
    it."""

    workspace_bytes: OrAbsent[int] | None = None
    relative_error: OrAbsent[Number] | None = None
    implementation: str = ""


class MemoryReply(Reply, frozen=True, kw_only=True):
    memory: Table[OrAbsent[int]]

    def first_known(self, *names: str) -> int | Absent:
        """Return the first of these that is known; if none is, the reason of the last."""
        found = [self.memory.get(name, Absent(f"the worker does not tell {name}")) for name in names]
        return next((value for value in found if not isinstance(value, Absent)), found[-1])


class MemoryPeak(MemoryReply, frozen=True, kw_only=True):
    """The peak memory of a few steps, and the memory that was available to them."""

    available_bytes: OrAbsent[int]

    @property
    def step_bytes(self) -> int | Absent:
        """Return the memory of the step: on its device, or on the host the growth since before the build."""
        return self.first_known("device_allocated_bytes", "host_growth_bytes")

    @property
    def whole_bytes(self) -> int | Absent:
        """Return the memory that counts against a limit: on the host, that of the whole process."""
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
