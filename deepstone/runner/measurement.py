"""Measures one launch of a job: warm-up, blocks until the interval is narrow or the budget is spent, then phases,
energy, communication, loss and memory; of several processes a timeline at last.

    hello ─ prepare ─▶ block block block … block ─▶ phases ─▶ energy ─▶ … ─▶ loss, memory ─▶ timeline ─▶ close
                       │◀─ noise is read at both ends ─▶│
                       │ between blocks: did warm-up end? is the interval narrow enough?
                  snapshots                  snapshots: does the program train? (measure.training)

Progress is reported only between blocks; while a block runs the controller sleeps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from statistics import median

import msgspec
from msgspec import field

from deepstone.absent import Absent
from deepstone.graph.ops import BatchNorm
from deepstone.hardware.noise import Noise
from deepstone.measure.doubts import RoundTrip
from deepstone.measure.effort import Effort
from deepstone.measure.energy.base import Meter
from deepstone.measure.energy.window import energy_over, find_board_meters, find_meters, read_meters
from deepstone.measure.noise import NoiseReading, noise_doubts
from deepstone.measure.statistics import Quantity, difference_of_medians, median_of, rough_relative_half_width
from deepstone.measure.steady_state import settled, warmup_end
from deepstone.measure.training import (
    EARLY_STEPS,
    GRADIENT_LOOKS,
    LATE_STEPS,
    Evidence,
    Snapshot,
    standing_still,
    without_gradient,
)
from deepstone.results.doubt import Doubt
from deepstone.results.parallel import Bubbles, Communication, HostFacts, Launcher, RankFacts, StageFacts, Wire
from deepstone.results.record import Energy
from deepstone.results.together import ends_of
from deepstone.runner.bubbles import trace_pipeline
from deepstone.runner.communication import measure_communication, measure_driven_communication
from deepstone.runner.conversation import JobFailed
from deepstone.runner.gpu_around import GpuAround
from deepstone.runner.job import Job
from deepstone.runner.rank_memory import predicted_bytes
from deepstone.runner.replies import BlockTimes, Hello, Prepared
from deepstone.runner.team import Talk, Team, TeamBlock
from deepstone.runner.timeline import Traced, trace_steps
from deepstone.runner.wire import measure_wire

# A timed sample lasts at least this long, so that the cost of the timestamps at its ends is negligible: reading the
# host's clock takes 0.1 µs, recording a CUDA event some 5 µs of the host's time.
SHORTEST_SAMPLE_CPU_S = 1e-3
SHORTEST_SAMPLE_GPU_S = 4e-3
MOST_SAMPLES = 50_000  # in the longest run, so that a record stays readable
MOST_OF_ALL_RANKS = 200_000
FEWEST_BLOCKS = 5
FEWEST_SAMPLES = 10
# A start can be slow for many steps. So an interval counts only after this time and this many steps, or after half the
# budget if steps are slow. Then a third more of the same must confirm it.
LEAST_TIME_S = 2.0
LEAST_STEPS = 60
CONFIRMING_SHARE = 1 / 3
_MOST_CHANGE = 2.0  # in multiples of the target, between the first interval and the one that confirms it
_VALUES_PER_ARRAY = 128  # in a snapshot
PHASE_ROUNDS = 5
PHASE_BUDGET_SHARE = 0.1
LONG_PHASE_BUDGET_SHARE = 0.25  # of rounds of one step, if steps are long; but two rounds at least
LEAST_PHASE_ROUNDS = 2
MOST_PHASE_STEPS = 40  # per round
LONG_BLOCK_S = 1.0  # what is read before every such block takes little beside it
_PHASE_REPLICATES = 400

_SNAPSHOT_OF = {"train": "parameters", "gradient": "gradients"}

OnProgress = Callable[[str, float], None]  # stage, share done


class Launched(msgspec.Struct, kw_only=True):
    """The results of one launch so far. Filled step by step, so that a crash loses no earlier measurement."""

    hello: Hello | None = None
    pids: list[int] = field(default_factory=list[int])  # of all processes
    prepared: Prepared | None = None
    blocks: list[BlockTimes] = field(default_factory=list[BlockTimes])
    stopped: str = ""
    phase_s: dict[str, Quantity] = field(default_factory=dict[str, Quantity])
    phase_method: str = ""
    memory: Mapping[str, int | Absent] = field(default_factory=dict[str, int | Absent])
    energy: Energy | Absent = field(default_factory=lambda: Absent("the run ended before energy was measured"))
    noise: tuple[NoiseReading, NoiseReading] | None = None
    gpu: GpuAround = field(default_factory=GpuAround)
    round_trips: list[RoundTrip] = field(default_factory=list[RoundTrip])
    loss: float | None = None
    communication: Communication | None = None  # where there are several processes
    traced: Traced | None = None
    wire: Wire | Absent = field(default_factory=lambda: Absent("not counted in a comparison"))
    bucket_bytes: list[int] = field(default_factory=list[int])
    stages: list[StageFacts] = field(default_factory=list[StageFacts])  # of a pipeline
    bubbles: Bubbles | Absent = field(default_factory=lambda: Absent("not traced in this run"))  # of a pipeline
    hosts: list[HostFacts] = field(default_factory=list[HostFacts])
    ranks: list[RankFacts] = field(default_factory=list[RankFacts])
    launcher: Launcher | None = None
    clock_error_s: float = 0.0  # of a difference between times of two processes
    nodes_share_machine: bool = False
    differing: list[str] = field(default_factory=list[str])  # parameters that replicas do not share
    evidence: Evidence | None = None
    step: Quantity | None = None  # the interval that ended the measurement, to avoid computing it again
    calibration_samples: int = 0  # taken to find out how long a step is; they always count as warm-up
    warmup_given: int | None = None  # samples of warm-up if the caller decides; otherwise detected from the samples

    @property
    def samples(self) -> list[float]:
        return [sample for block in self.blocks for sample in block.step_s]

    @property
    def recent_step_s(self) -> float:
        """Return the approximate current step time."""
        return median(self.blocks[-1].step_s)

    @property
    def warmup_samples(self) -> int:
        if self.warmup_given is not None:
            return self.warmup_given
        return max(warmup_end(self.samples), self.calibration_samples)

    @property
    def warmup_steps(self) -> int:
        left, steps = self.warmup_samples, 0
        for block in self.blocks:
            taken = min(left, len(block.step_s))
            steps += taken * block.steps_per_sample
            left -= taken
        return steps

    def steady(self) -> list[list[float]]:
        """Return the samples after warm-up, in their blocks."""
        left, blocks = self.warmup_samples, list[list[float]]()
        for block in self.blocks:
            rest = block.step_s[left:]
            left = max(0, left - len(block.step_s))
            if rest:
                blocks.append(rest)
        return blocks

    def steady_ranks(self) -> list[list[BlockTimes]]:
        """Return the same of every process, block by block; empty where there is one process."""
        left, blocks = self.warmup_samples, list[list[BlockTimes]]()
        for block in self.blocks:
            skipped = min(left, len(block.step_s))
            left -= skipped
            if isinstance(block, TeamBlock) and skipped < len(block.step_s):
                blocks.append([_without_first(rank, skipped) for rank in block.ranks])
        return blocks

    @property
    def on_gpu(self) -> bool:
        return self.prepared is not None and self.prepared.value("device").startswith("gpu")

    @property
    def noise_doubts(self) -> list[Doubt]:
        """Return the doubts about other load on the machine and on the GPU."""
        if self.noise is None:
            return []
        return noise_doubts(*self.noise, **self.gpu.uses(self.gpu_uuid) if self.on_gpu else {})

    @property
    def gpu_uuid(self) -> str | None:
        """Return the UUID of the board: the framework and the driver may number boards differently."""
        return None if self.prepared is None else self.prepared.known.gpu_uuid


def _without_first(block: BlockTimes, skipped: int) -> BlockTimes:
    start_s, step_s = ends_of(block)[skipped], block.step_s[skipped:]
    return msgspec.structs.replace(block, start_s=start_s, step_s=step_s) if skipped else block


def start(
    conversation: Talk, job: Job, launched: Launched, on_progress: OnProgress, *, beforehand: Job | None = None
) -> None:
    """Build and run the first step. Raises JobFailed if the effective setup contradicts the requested one.

    `beforehand` is a job that the worker builds and drops first, so that the framework has loaded all its libraries.
    """
    on_progress("starting the framework", 0.0)
    launched.hello = conversation.hello()
    launched.pids = [launched.hello.pid]
    if isinstance(conversation, Team):
        launched.pids, launched.hosts, launched.launcher = (
            conversation.pids,
            conversation.hosts(),
            conversation.launcher(),
        )
    if beforehand is not None:
        conversation.prepare(beforehand)
    on_progress("building the network", 0.0)
    launched.prepared = conversation.prepare()
    reason = launched.prepared.contradiction(job.request)
    if reason:
        raise JobFailed("unsupported", reason, stage="prepare")
    graph = job.model.graph
    launched.evidence = Evidence(
        phase=launched.prepared.value("phase"),
        precision=launched.prepared.value("precision"),
        has_parameters=not graph.opaque and any(graph.parameters(layer) for layer in graph.layers),
    )


def measure(conversation: Talk, job: Job, launched: Launched, effort: Effort, on_progress: OnProgress) -> None:
    """Measure a whole launch."""
    start(conversation, job, launched, on_progress)
    assert launched.hello is not None
    with closing(noise_around([launched])) as noise:
        before = noise.now()
        _blocks(conversation, launched, effort, on_progress)
        launched.noise = (before, noise.now())
    snapshots_at_end(conversation, launched)
    if isinstance(conversation, Team):
        _processes(conversation, job, launched)
    if effort.phases and int(job.request["accumulate"]) == 1:  # phases of several parts take turns
        on_progress("phases", 1.0)
        _phases(conversation, launched, effort)
    on_progress("energy", 1.0)
    measure_energy(conversation, job, launched, effort.energy_s)
    if isinstance(conversation, Team) and effort.phases:
        on_progress("communication", 1.0)
        _communication(conversation, launched, effort)
    reason = look_at_end(conversation, launched)
    if isinstance(conversation, Team) and effort.phases and reason is None and math.isfinite(launched.loss or 0.0):
        on_progress("timeline", 1.0)
        launched.traced = _traced(conversation, launched, effort)
    leave(conversation, job, launched, reason)


def _processes(team: Team, job: Job, launched: Launched) -> None:
    """What each process has, and how much memory its steps take, which needs one more."""
    team.read_step_memory(steps=1)
    assignments, launched.bucket_bytes = team.assignments(), team.buckets()
    launched.stages = [
        StageFacts(rank=rank, **msgspec.structs.asdict(stage))
        for rank, assignment in enumerate(assignments)
        for stage in assignment.stages
    ]
    team.predicted = predicted_bytes(job, assignments, launched.bucket_bytes)


def _communication(team: Team, launched: Launched, effort: Effort) -> None:
    """The stages of a pipeline wait for each other in any case, so what steps without communication save says little:
    see runner/bubbles.py."""
    if team.world.stages > 1:
        launched.wire = measure_wire(team, launched.recent_step_s)
        return
    measure = measure_communication if team.world.driver is None else measure_driven_communication
    launched.communication, launched.wire = measure(team, launched.recent_step_s, effort)
    if launched.phase_s:
        launched.phase_s["communication"] = launched.communication.exposed_s


def _traced(team: Team, launched: Launched, effort: Effort) -> Traced:
    """A failure here is no failure of the run, whose every number is known by now."""
    try:
        if team.world.stages == 1:
            return trace_steps(team, launched.recent_step_s, effort)
        found = trace_pipeline(team, launched.recent_step_s, effort)
        launched.bubbles = found.bubbles
        if launched.phase_s and not isinstance(found.bubbles, Absent):
            launched.phase_s["communication"] = found.bubbles.exposed_s
        no_account = Absent("the stages of a pipeline wait for each other in any case; see bubbles")
        return Traced(account=no_account, logged=no_account, timeline=found.timeline, steps=found.steps)
    except JobFailed as failure:
        return Traced.not_done(f"tracing failed: {failure.reason}", ended_workers=True)


def noise_around(launches: Sequence[Launched]) -> Noise:
    """Return the reader of the noise around the workers of these launches."""
    pids = [pid for launched in launches for pid in launched.pids]
    uuid = next((launched.gpu_uuid for launched in launches if launched.on_gpu), None)
    before = {pid for launched in launches for pid in launched.gpu.pids_before}
    return Noise(pids, gpu_uuid=uuid, gpu_pids_before=before)


def finish(conversation: Talk, job: Job, launched: Launched) -> None:
    """Read what is left to read, and close. The loss must be finite, and the effective setup as requested."""
    leave(conversation, job, launched, look_at_end(conversation, launched))


def look_at_end(conversation: Talk, launched: Launched) -> str | None:
    """Read the loss, the memory, and how the effective setup contradicts the requested one, if it does."""
    launched.loss = conversation.losses(0)[-1]
    launched.memory = conversation.memory()
    if isinstance(conversation, Team):
        launched.blocks = conversation.on_one_clock(launched.blocks)
        launched.clock_error_s = conversation.clocks.error_s
        if not conversation.clocks.are_shared:
            launched.step = None  # it is of the blocks as they were on one clock before
        launched.ranks, launched.differing = conversation.facts(), conversation.differing
        launched.nodes_share_machine = conversation.started is not None and conversation.started.are_emulated
    return conversation.contradiction()


def leave(conversation: Talk, job: Job, launched: Launched, reason: str | None) -> None:
    """Close, and raise JobFailed if the loss is not finite or there is a contradiction (`reason`)."""
    launched.round_trips = conversation.round_trips
    if launched.traced is None or not launched.traced.ended_workers:
        conversation.close()
    assert launched.loss is not None
    if not math.isfinite(launched.loss):
        raise JobFailed("diverged", f"the loss became {launched.loss}{_against_divergence(job)}", stage="losses")
    if reason:
        raise JobFailed("unsupported", f"{reason} by the end of the run", stage="observe")


def _against_divergence(job: Job) -> str:
    """The remedy where the cause is known: a deep network whose exporter merged its batch norms trains badly."""
    graph = job.model.graph
    if not job.model.source.endswith(".onnx") or any(isinstance(layer.op, BatchNorm) for layer in graph.layers):
        return ""
    return (
        "; the file has no batch norm, and exporting a network in evaluation mode takes them away: "
        "export it in training mode, or use optimizer=adam"
    )


def calibrate(conversation: Talk, launched: Launched, effort: Effort) -> tuple[int, int]:
    """Return the steps per sample and the samples per block. The steps run for it count as warm-up.

    Snapshots surround the first of them; their blocks are requested like those that will be timed.
    """
    assert launched.evidence is not None
    launched.evidence.first = snapshot(conversation, launched)
    launched.blocks.append(conversation.block(samples=EARLY_STEPS))
    launched.evidence.early = snapshot(conversation, launched)
    if launched.blocks[-1].total_s <= effort.block_s:
        launched.blocks.append(conversation.block(samples=3))
    if launched.blocks[-1].total_s > effort.block_s:
        return _sizes(conversation, launched, effort)
    # The first steps may be many times slower than the rest, so a block of about the right length sets the sizes.
    steps_per_sample, samples = _sizes(conversation, launched, effort)
    launched.blocks.append(conversation.block(samples=samples, steps_per_sample=steps_per_sample))
    return _sizes(conversation, launched, effort)


def snapshot(conversation: Talk, launched: Launched) -> Snapshot:
    """Read the loss and some values, outside timed blocks."""
    evidence = launched.evidence
    assert evidence is not None
    loss, kind = read_loss(conversation, launched), _SNAPSHOT_OF.get(evidence.phase)
    values = {} if kind is None else conversation.sample(kind, most=_VALUES_PER_ARRAY)
    return Snapshot(steps=conversation.steps, loss=loss, values=values)


def read_loss(conversation: Talk, launched: Launched) -> float:
    assert launched.evidence is not None
    loss = conversation.losses(0)[-1]
    launched.evidence.losses.append((conversation.steps, loss))
    return loss


def snapshot_before_last(conversation: Talk, launched: Launched) -> None:
    """Take the snapshot before the last timed block. A caller that does not know which one that is may take it before
    each."""
    assert launched.evidence is not None
    launched.evidence.before_last = snapshot(conversation, launched)


def snapshots_at_end(conversation: Talk, launched: Launched) -> None:
    """Take snapshots after all timed blocks and after a few more steps. If there was none before the last timed block,
    run one more such block first."""
    evidence, last = launched.evidence, launched.blocks[-1]
    assert evidence is not None
    if evidence.before_last is None and last.steps > LATE_STEPS:
        evidence.before_last = snapshot(conversation, launched)
        conversation.block(samples=len(last.step_s), steps_per_sample=last.steps_per_sample)
    evidence.late = snapshot(conversation, launched)
    conversation.block(samples=1 if last.total_s >= LONG_BLOCK_S else LATE_STEPS)
    evidence.after = snapshot(conversation, launched)
    if standing_still(evidence) and not isinstance(conversation, Team):  # replicas have gradients of their own
        _look_at_gradients(conversation, evidence)


def _look_at_gradients(conversation: Talk, evidence: Evidence) -> None:
    """Look until every array that stands still has had a gradient."""
    for number in range(GRADIENT_LOOKS):
        if number:
            conversation.block(samples=1)
        evidence.late_gradients.append(conversation.sample("gradients", most=_VALUES_PER_ARRAY))
        if not without_gradient(evidence):
            return


def _sizes(conversation: Talk, launched: Launched, effort: Effort) -> tuple[int, int]:
    step_s = launched.recent_step_s
    shortest_s = SHORTEST_SAMPLE_GPU_S if launched.on_gpu else SHORTEST_SAMPLE_CPU_S
    most = min(MOST_SAMPLES, MOST_OF_ALL_RANKS // len(launched.pids))
    shortest_s = max(shortest_s, effort.budget_s / most)
    steps_per_sample = max(1, math.ceil(shortest_s / max(step_s, 1e-9)))
    samples = round(effort.block_s / max(step_s * steps_per_sample, 1e-9))
    return steps_per_sample, max(conversation.fewest_samples, samples)


def _blocks(conversation: Talk, launched: Launched, effort: Effort, on_progress: OnProgress) -> None:
    steps_per_sample, samples = calibrate(conversation, launched, effort)
    launched.calibration_samples = len(launched.samples)
    spent_s = sum(block.spent_s for block in launched.blocks)
    width, next_check = math.inf, 0
    first: _ToConfirm | None = None
    extended = False
    while True:
        if launched.blocks[-1].total_s >= LONG_BLOCK_S:  # this may be the last one, and one more for it takes long
            snapshot_before_last(conversation, launched)
        launched.blocks.append(conversation.block(samples=samples, steps_per_sample=steps_per_sample))
        spent_s += launched.blocks[-1].spent_s
        if spent_s >= (first.until_s if first else 0.0) and len(launched.blocks) >= next_check:
            # Check ever more rarely: a check costs time, and one block changes less and less.
            long_enough = _long_enough(launched, spent_s, effort.budget_s)
            width = _relative_half_width(launched, effort.target_share, roughly=not long_enough)
            next_check = math.ceil(1.15 * len(launched.blocks))
            if width > effort.target_share or not long_enough:
                first = None
            elif first is not None and first.holds(launched, effort.target_share):
                launched.stopped = "interval within the target"
                return
            else:
                first, next_check = _ToConfirm.of(launched, spent_s), 0
        if spent_s >= effort.budget_s:
            launched.step = None  # it does not include the latest samples
            if len(launched.samples) - launched.warmup_samples >= effort.least_samples:
                launched.stopped = "budget stretched for a least number of samples" if extended else "budget spent"
                return
            extended, samples = True, conversation.fewest_samples
        done = max(spent_s / effort.budget_s, (effort.target_share / width) ** 2 if 0 < width < math.inf else 0.0)
        on_progress("measuring", min(done, 0.99))


class _ToConfirm(msgspec.Struct, frozen=True, kw_only=True):
    """An interval that is narrow enough, and the time until which later steps must confirm it."""

    step_s: float
    samples: int
    until_s: float

    @classmethod
    def of(cls, launched: Launched, spent_s: float) -> _ToConfirm:
        steady = [sample for block in launched.steady() for sample in block]
        until_s = (1 + CONFIRMING_SHARE) * spent_s
        return cls(step_s=median(steady), samples=len(launched.samples), until_s=until_s)

    def holds(self, launched: Launched, target_share: float) -> bool:
        later_s = median(launched.samples[self.samples :])
        return abs(later_s - self.step_s) <= _MOST_CHANGE * target_share * self.step_s


def _long_enough(launched: Launched, spent_s: float, budget_s: float) -> bool:
    steps = sum(block.steps for block in launched.blocks)
    return spent_s >= LEAST_TIME_S and (steps >= LEAST_STEPS or spent_s >= budget_s / 2)


def _relative_half_width(launched: Launched, target_share: float, *, roughly: bool) -> float:
    """Return infinity until there are enough samples. `roughly`: it only tells how far the measurement is."""
    blocks = launched.steady()
    if len(blocks) < FEWEST_BLOCKS or sum(map(len, blocks)) < FEWEST_SAMPLES or not settled(launched.samples):
        return math.inf
    rough = rough_relative_half_width(blocks)
    if roughly or rough > 2 * target_share:
        return rough
    # Near the target, use the interval that will be reported, so that a run never reports a wider one than it claims.
    step = median_of([blocks])
    if step.relative_half_width <= target_share:
        launched.step = step
    return step.relative_half_width


def _phases(conversation: Talk, launched: Launched, effort: Effort) -> None:
    assert launched.prepared is not None
    step_s = launched.recent_step_s
    count, steps = phase_rounds(step_s, effort.budget_s)
    if launched.prepared.phases is None:
        _phases_by_difference(conversation, launched, count, steps)
        return
    rounds = [conversation.phases(steps) for _ in range(count)]
    launched.phase_s = {
        name: median_of([[taken[name] for taken in rounds]], replicates=_PHASE_REPLICATES) for name in rounds[0]
    }
    timer = "device events" if launched.on_gpu else "timestamps"
    launched.phase_method = f"{timer} in steps of their own"


def phase_rounds(step_s: float, budget_s: float) -> tuple[int, int]:
    """How many rounds, and steps in each."""
    steps = int(PHASE_BUDGET_SHARE * budget_s / PHASE_ROUNDS / max(step_s, 1e-9))
    if steps:
        return PHASE_ROUNDS, min(MOST_PHASE_STEPS, steps)
    affordable = int(max(LONG_PHASE_BUDGET_SHARE * budget_s, LEAST_TIME_S) / max(step_s, 1e-9))
    return min(PHASE_ROUNDS, max(LEAST_PHASE_ROUNDS, affordable)), 1


def _phases_by_difference(conversation: Talk, launched: Launched, rounds: int, steps: int) -> None:
    """Run three programs in turns: forward, forward and backward, the whole step; in several processes, the step
    without communication."""
    assert launched.prepared is not None
    phase = launched.prepared.value("phase")
    programs = ["forward", "gradient", "train"][: ["forward", "gradient", "train"].index(phase) + 1]
    if isinstance(conversation, Team):
        programs[-1] = "local" if conversation.world.driver is None else "update"  # which servers make
    times: dict[str, list[list[float]]] = {program: [] for program in programs}
    for program in programs:
        conversation.block(samples=2 if rounds == PHASE_ROUNDS else 1, program=program)  # compiles, warms up
    for turn in range(rounds):
        for program in programs if turn % 2 == 0 else reversed(programs):
            block = conversation.block(samples=steps, program=program)
            times[program].append(conversation.mean_step_s if isinstance(conversation, Team) else block.step_s)
    if isinstance(conversation, Team):
        conversation.restore()
    launched.phase_s = {"forward": median_of([times["forward"]])}
    if "gradient" in times:
        launched.phase_s["backward"] = difference_of_medians(times["gradient"], times["forward"])
    if "update" in times:
        launched.phase_s["update"] = median_of([times["update"]])
    elif phase == "train":
        launched.phase_s["update"] = difference_of_medians(times[programs[-1]], times["gradient"])
    launched.phase_method = "difference of separately compiled programs, interleaved"


def measure_energy(conversation: Talk, job: Job, launched: Launched, window_s: float) -> None:
    """Measure one long block: counters update slowly, and pauses between blocks would count as work."""
    if not window_s:
        launched.energy = Absent("this launch did not read the meters")
        return
    meters = _meters(conversation, launched)
    if isinstance(meters, Absent):
        launched.energy = meters
        return
    step_s = launched.recent_step_s
    samples = max(1, math.ceil(window_s / max(step_s, 1e-9)))
    try:
        before = read_meters(meters)
        block = conversation.block(samples=1, steps_per_sample=samples)
        after = read_meters(meters)
    finally:
        for meter in meters:
            meter.close()
    launched.energy = energy_over(before, after, steps=block.steps, samples=block.steps * job.batch)


def _meters(conversation: Talk, launched: Launched) -> Sequence[Meter] | Absent:
    """The meters of all that the job runs on: with those of a part, its samples per joule would be too many."""
    if not isinstance(conversation, Team):
        return find_meters("gpu", gpu_uuid=launched.gpu_uuid) if launched.on_gpu else find_meters("cpu")
    if not conversation.clocks.are_shared:
        return Absent("some of its processes run on another machine, whose meters are not read")
    if not launched.on_gpu:
        return find_meters("cpu")
    known = [each.known.gpu_uuid for each in conversation.prepared if each.value("device").startswith("gpu")]
    boards = {uuid for uuid in known if uuid is not None}
    if None in known:
        return Absent(
            "each process has a GPU of its own, and the framework does not tell which: their energy is unknown"
        )
    return find_board_meters(sorted(boards))


def clock_cost_s() -> float:
    """Return the cost of reading the clock, the smallest of a few tries."""
    return min(_time_clock() for _ in range(5))


def _time_clock() -> float:
    begin = time.perf_counter()
    for _ in range(200):
        time.perf_counter()
    return (time.perf_counter() - begin) / 200


def no_progress(_stage: str, _share: float) -> None:
    """Ignore progress."""
