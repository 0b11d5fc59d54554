"""The record of one run, schema 1. Unknown values are absent with the reason, never null."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta

from deepstone.absent import Absent
from deepstone.results.doubt import Doubt
from deepstone.results.environment import Environment
from deepstone.results.parallel import Parallel
from deepstone.results.parts import (
    AtLeast0,
    Command,
    Count,
    Json,
    Number,
    OrAbsent,
    Part,
    Positive,
    RunId,
    Sha,
    SomeText,
    Table,
    Time,
    Value,
)
from deepstone.results.quantity import Quantity
from deepstone.results.sameness import SidesChecked
from deepstone.results.together import latest_ends, steps_between

SCHEMA: Final = 1
LOOK: Final = "a look of "  # how `stopped` begins in a launch that a search made
PROGRAM: Final = "deepstone"  # the first word of every recorded command

Outcome: TypeAlias = Literal["ok", "unsupported", "oom", "timeout", "crashed", "diverged"]
WorkloadPhase: TypeAlias = Literal["forward", "gradient", "train"]  # how much of a step a job runs
OUTCOMES: Final[tuple[Outcome, ...]] = ("ok", "unsupported", "oom", "timeout", "crashed", "diverged")
STEP_PHASES: Final = ("data", "forward", "backward", "communication", "update")  # the phases of a step


class IdentityWorkload(Part, frozen=True, kw_only=True):
    model: str
    batch: Positive
    phase: WorkloadPhase
    input: str


class Identity(Part, frozen=True, kw_only=True):
    """Runs with equal identities are runs of the same job. It has no host, user or path, so redaction keeps the name.
    `mpi`: the MPI library of a job with transport=mpi, as it names itself; it is no package of the environment. Early
    records lack it."""

    graph_sha: Sha
    workload: IdentityWorkload
    requested: Table[Value]
    environment_sha: Sha
    machine_sha: Sha
    repetition: Positive
    mpi: SomeText | None = None


class Workload(IdentityWorkload, frozen=True, kw_only=True):
    """`source`: "zoo", or the file of the model, whose SHA-256 is `file_sha256`. `sample`: the name of a sample,
    missing for an image. `unit`: the units of a sample, such as tokens, and their number."""

    source: SomeText
    file_sha256: Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?\Z")]
    sample: SomeText | None = None
    unit: SomeText | None = None
    units_per_sample: Positive | None = None

    @property
    def samples(self) -> str:
        return f"{self.sample or 'image'}s"

    @property
    def things(self) -> str:
        """What people count in a second: tokens where samples are made of these, else samples."""
        return f"{self.unit}s" if self.unit else self.samples

    @property
    def things_per_sample(self) -> int:
        return self.units_per_sample or 1


class Effect(Part, frozen=True, kw_only=True):
    """The effective value of an axis: `observed` in the framework, or only `set`."""

    value: str | int | float | bool
    source: Literal["observed", "set"]


class Setup(Part, frozen=True, kw_only=True, rename={"effects": "effective"}):
    """`effects` is missing in findings without an effective setup."""

    requested: Table[Value]
    effects: Table[Effect] | None = None

    @property
    def effective(self) -> Table[Effect]:
        return self.effects or {}

    def value(self, axis: str) -> str:
        """Return the effective value of an axis, else the requested one, else an empty text."""
        return str(self.effective[axis].value if axis in self.effective else self.requested.get(axis, ""))


class Failure(Part, frozen=True, kw_only=True):
    reason: SomeText
    stage: SomeText
    stderr_tail: str
    signal: Annotated[str, Meta(pattern=r"^SIG[A-Z0-9+-]{1,20}\Z")] | None = None
    exit_code: int | None = None


class Block(Part, frozen=True, kw_only=True):
    """Samples taken without a pause; each is the mean of `steps_per_sample` steps."""

    start_s: AtLeast0
    steps_per_sample: Positive
    step_s: list[AtLeast0]


class Rank(Part, frozen=True, kw_only=True):
    """One process of a launch, by the controller's clock. Early records have one for all: the job's own steps."""

    blocks: list[Block]


class Launch(Part, frozen=True, kw_only=True):
    ranks: list[Rank]
    warmup_steps: Count

    @property
    def blocks(self) -> list[Block]:
        """Those of the job: a step ends when the last rank has ended it."""
        if len(self.ranks) == 1:
            return self.ranks[0].blocks
        return [_block_of_job(block) for block in zip(*(rank.blocks for rank in self.ranks), strict=True)]


def _block_of_job(ranks: tuple[Block, ...]) -> Block:
    ends, per_sample = latest_ends(ranks), ranks[0].steps_per_sample
    return Block(start_s=ends[0], steps_per_sample=per_sample, step_s=steps_between(ends, per_sample))


class Samples(Part, frozen=True, kw_only=True):
    launches: list[Launch]
    warmup_steps: Count

    @property
    def timed(self) -> Iterator[Block]:
        """Yield the blocks of every launch, as steps of the job."""
        return (block for launch in self.launches for block in launch.blocks)


class Summary(Part, frozen=True, kw_only=True):
    step_s: Quantity
    samples_per_s: Quantity
    sustained_samples_per_s: AtLeast0
    interval: Literal["within process", "across launches"]
    stopped: SomeText
    units_per_s: Quantity | None = None  # if the workload has a unit


class StepPhases(Part, frozen=True, kw_only=True):
    """A phase that was found by subtraction may be negative."""

    data_s: OrAbsent[Quantity]
    forward_s: OrAbsent[Quantity]
    backward_s: OrAbsent[Quantity]
    communication_s: OrAbsent[Quantity]
    update_s: OrAbsent[Quantity]
    method: SomeText

    def items(self) -> Iterator[tuple[str, Quantity | Absent]]:
        for name in STEP_PHASES:
            yield name, getattr(self, f"{name}_s")


class Meter(Part, frozen=True, kw_only=True):
    """The share of one counter. `covers`: what its joules include."""

    name: str
    covers: str
    joules: Number
    update_period_s: Number


class Energy(Part, frozen=True, kw_only=True):
    """Energy of the whole device over a window. `resolution_share`: the error of the joules, because counters move in
    steps."""

    joules: Number
    joules_per_step: Number
    samples_per_j: Number
    average_power_w: Number
    window_s: Number
    resolution_share: Number
    meters: list[Meter]


class Cost(Part, frozen=True, kw_only=True):
    flops: OrAbsent[Count]
    bytes: OrAbsent[Count]


class ShareOfPeak(Part, frozen=True, kw_only=True):
    """FLOP/s of the step over those of the fastest matrix product in the same precision."""

    share: Number
    peak_flops_per_s: Number
    precision: str | None = None
    measured_with: str | None = None
    measured_at: str | None = None


class Comparison(Part, frozen=True, kw_only=True):
    """`ratio`: time per sample of A over B; in the record of a further side, of A over this side, and `other_job` is
    the job of A. `stopped`: why there are no more pairs; early records lack it."""

    side: Annotated[str, Meta(pattern=r"^[a-z]\Z")]
    other_job: Sha
    ratio: Quantity
    verdict: str
    pairs: Count
    pairing: str
    sameness: OrAbsent[SidesChecked]
    stopped: str | None = None


class Training(Part, frozen=True, kw_only=True):
    """The effect of the timed steps. `losses`: pairs of steps done and loss. `early_change`: how far the first steps
    moved the parameters (or the size of the gradients); `moved` of `arrays` changed at all."""

    losses: list[tuple[Positive, Number]]
    early_change: AtLeast0 | None = None
    arrays: Positive | None = None
    moved: Count | None = None


class Draft(Part, frozen=True, kw_only=True):
    """A record before the store has given it its `id`."""

    schema: Literal[1]
    job: Sha
    started_at: Time
    graph_sha: Sha
    command: Command
    identity: Identity
    workload: Workload
    setup: Setup
    outcome: Outcome
    failure: OrAbsent[Failure]
    samples: Samples
    summary: OrAbsent[Summary]
    phases: OrAbsent[StepPhases]
    startup: OrAbsent[Table[OrAbsent[AtLeast0]]]
    memory: OrAbsent[Table[OrAbsent[Count]]]
    energy: OrAbsent[Energy]
    cost: Cost
    share_of_peak: OrAbsent[ShareOfPeak | AtLeast0]
    environment: Environment
    comparison: OrAbsent[Comparison]
    training: OrAbsent[Training] | None = None  # early records lack it
    parallel: OrAbsent[Parallel] | None = None  # where there are several processes
    doubts: list[Doubt]

    @property
    def is_look(self) -> bool:
        """Whether a search made it: one short launch, with an interval from within its process alone."""
        return isinstance(self.summary, Summary) and self.summary.stopped.startswith(LOOK)

    def to_json(self) -> dict[str, Json]:
        written = super().to_json()
        if isinstance(self.training, Training):  # its pairs are lists in JSON
            losses: list[Json] = [list(pair) for pair in self.training.losses]
            written["training"] = {**self.training.to_json(), "losses": losses}
        return written


class Record(Draft, frozen=True, kw_only=True):
    """The stored result of a run. `origin`: its name in the store that it was imported from, where it has another one
    here."""

    id: RunId
    origin: RunId | None = None

    @staticmethod
    def of(draft: Draft, id: str) -> Record:
        return Record(id=id, **{name: getattr(draft, name) for name in Draft.__struct_fields__})
