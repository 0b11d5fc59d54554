"""The record of one run, schema 1: its keys, its closed lists, and types to read it with.

A record is plain JSON. What is not known is `{"absent": reason}`, never null.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NotRequired, TypeAlias, TypedDict, cast, final

SCHEMA: Final = 1

OUTCOMES: Final = ("ok", "unsupported", "oom", "timeout", "crashed", "diverged")
PHASES: Final = ("forward", "gradient", "train")
SOURCES_OF_EFFECT: Final = ("observed", "set")
INTERVALS: Final = ("within process", "across launches")
PROGRAM: Final = "deepstone"  # the first word of every recorded command

DOUBT_CODES: Final = {
    "cpu_steal": "the hypervisor gave this machine's CPU time to others while it measured",
    "other_load": "other processes used much of the CPU while it measured",
    "background_load": "other processes used a little of the CPU while it measured",
    "gpu_shared": "other processes used the GPU while it measured",
    "cpu_quota": "the control group's CPU quota stopped the worker again and again while it measured",
    "involuntary_switches": "the worker was often taken off its core while it measured",
    "clock_drop": "the core or device clock fell while it measured",
    "throttling": "the device slowed itself down for heat or power",
    "interval_too_wide": "the budget ended before the interval was as narrow as asked",
    "trend": "the samples rise or fall with time, so no single number describes them",
    "too_short_to_time": "a step is so short that the clock's own cost shows",
    "host_bound": "the device waited for the host, so the number tells about the host",
    "few_samples": "so few samples that the interval itself is uncertain",
    "diverging_launches": "the launches differ by more than the samples within each of them",
    "above_peak": "more operations in a second than the device can do: it leaves out work or was mistimed",
    "phases_disagree": "the step takes far more or less time than its phases together",
    "clocks_disagree": "the worker's clock and the controller's disagree about how long the same steps took",
    "not_training": "the steps that were timed are not shown to train the network",
    "profiler_overhead": "the profiler changed the step, so its parts do not add up to the untraced step",
}

MAX_RECORD_BYTES: Final = 64 * 2**20
MAX_NESTING: Final = 32
MAX_INTEGER: Final = 2**63 - 1

Outcome: TypeAlias = Literal["ok", "unsupported", "oom", "timeout", "crashed", "diverged"]
Phase: TypeAlias = Literal["forward", "gradient", "train"]


@final
class Absent(TypedDict):
    """Stands where a value would, and says why there is none."""

    absent: str


class Quantity(TypedDict):
    """A measured quantity with its 95 % interval and the number of samples behind it; one sample has no interval."""

    median: float
    low: float | Absent
    high: float | Absent
    n: int


class IdentityWorkload(TypedDict):
    model: str
    batch: int
    phase: Phase
    input: str


class Identity(TypedDict):
    """What makes two runs runs of the same job. Holds no host, user or path, so a redacted record keeps its name."""

    graph_sha: str
    workload: IdentityWorkload
    requested: dict[str, str | int]
    environment_sha: str
    machine_sha: str
    repetition: int


class Workload(IdentityWorkload):
    source: str
    file_sha256: str


class Effect(TypedDict):
    value: str | int | float | bool
    source: Literal["observed", "set"]


class Setup(TypedDict):
    requested: dict[str, str | int]
    effective: dict[str, Effect]


class Failure(TypedDict):
    reason: str
    stage: str
    stderr_tail: str
    signal: NotRequired[str]
    exit_code: NotRequired[int]


class Block(TypedDict):
    """Samples taken without a pause; each is the mean of `steps_per_sample` steps."""

    start_s: float
    steps_per_sample: int
    step_s: list[float]


class Rank(TypedDict):
    blocks: list[Block]


class Launch(TypedDict):
    ranks: list[Rank]
    warmup_steps: int


class Samples(TypedDict):
    launches: list[Launch]
    warmup_steps: int


class Summary(TypedDict):
    step_s: Quantity
    samples_per_s: Quantity
    sustained_samples_per_s: float
    interval: Literal["within process", "across launches"]
    stopped: str


class Phases(TypedDict):
    data_s: Quantity | Absent
    forward_s: Quantity | Absent
    backward_s: Quantity | Absent
    communication_s: Quantity | Absent
    update_s: Quantity | Absent
    method: str


class Cost(TypedDict):
    flops: int | Absent
    bytes: int | Absent


class Doubt(TypedDict):
    code: str
    detail: str


class Draft(TypedDict):
    """A record before the store has given it its `id`."""

    schema: Literal[1]
    job: str
    started_at: str
    graph_sha: str
    command: list[str]
    identity: Identity
    workload: Workload
    setup: Setup
    outcome: Outcome
    failure: Failure | Absent
    samples: Samples
    summary: Summary | Absent
    phases: Phases | Absent
    startup: dict[str, float | Absent] | Absent
    memory: dict[str, int | Absent] | Absent
    energy: dict[str, Any] | Absent
    cost: Cost
    share_of_peak: float | dict[str, Any] | Absent
    environment: dict[str, Any]
    comparison: dict[str, Any] | Absent
    training: NotRequired[dict[str, Any] | Absent]  # what the timed steps did; early records lack it
    doubts: list[Doubt]


class Record(Draft):
    """What is kept of a run."""

    id: str


def absent(reason: str) -> Absent:
    return {"absent": reason}


def is_absent(value: object) -> bool:
    """For a value of any type. Where the type is known, write `"absent" in value`: a type checker understands that."""
    return isinstance(value, dict) and "absent" in cast(dict[object, object], value)
