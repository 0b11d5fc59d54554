"""Measures the time of each layer of a step.

    prepare ─▶ [ plain steps │ timestamped or traced steps ] × rounds ─▶ isolated layers ─▶ kernels ─▶ close

Plain and timestamped steps take turns in one process, so that the sum of the parts is compared with the same process's
step. Isolated times come after, and are never presented as the step.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from msgspec import Struct, field

from deepstone.absent import Absent
from deepstone.measure.effort import Effort
from deepstone.measure.statistics import FEWEST_FOR_CONFIDENCE
from deepstone.results.layers import IsolatedLayer, KernelTrace
from deepstone.runner.conversation import Conversation, JobFailed, talking_to_worker
from deepstone.runner.gpu_around import gpu_use_around
from deepstone.runner.job import Job
from deepstone.runner.layers.isolated import time_isolated
from deepstone.runner.measurement import Launched, OnProgress, calibrate, no_progress, noise_around, start
from deepstone.runner.replies import InPlaceTimes

ROUNDS = 8
FEWEST_ROUNDS = FEWEST_FOR_CONFIDENCE  # profiler overhead is judged by rounds
MOST_STEPS = 25  # in a round
LONG_STEP_S = 0.5  # the state of the caches does not affect longer steps
TRACED_STEPS = 3


class LayersEffort(Struct, frozen=True, kw_only=True):
    """How long to measure: `budget_s` for steps in place, and as long again for isolated layers."""

    budget_s: float = 20.0
    timeout_s: float = 1800.0
    in_place: bool = True
    isolated: bool = True
    kernels: bool = False
    trace_path: Path | None = None


class LayersFound(Struct, kw_only=True):
    """The raw measurements."""

    launched: Launched = field(default_factory=Launched)
    plain_s: list[list[float]] = field(default_factory=list[list[float]])  # steps by round
    rounds: list[InPlaceTimes] = field(default_factory=list[InPlaceTimes])
    in_place_absent: Absent | None = None
    isolated: dict[str, IsolatedLayer] | Absent = field(default_factory=lambda: Absent("not asked for"))
    trace: KernelTrace | Absent = field(default_factory=lambda: Absent("not asked for; --kernels gives them"))


def find_layers(job: Job, effort: LayersEffort, on_progress: OnProgress = no_progress) -> LayersFound:
    """Raises JobFailed if the job itself does not run, MissingError if something is missing."""
    reason = job.broken_rule
    if reason:
        raise JobFailed("unsupported", reason, stage="plan")
    found = LayersFound()
    with gpu_use_around(job) as gpu, talking_to_worker(job, timeout_s=effort.timeout_s) as conversation:
        found.launched.gpu = gpu
        start(conversation, job, found.launched, on_progress)
        with closing(noise_around([found.launched])) as noise:
            before = noise.now()
            _in_turns(conversation, found, effort, on_progress)
            found.launched.noise = (before, noise.now())
        if effort.isolated:
            _isolated(conversation, job, found, effort, on_progress)
        if effort.kernels or effort.trace_path is not None:
            on_progress("kernels", 1.0)
            found.trace = _traced(conversation, effort)
        found.launched.round_trips = conversation.round_trips
        conversation.close()
    return found


def _in_turns(conversation: Conversation, found: LayersFound, effort: LayersEffort, on_progress: OnProgress) -> None:
    calibrate(conversation, found.launched, Effort(budget_s=effort.budget_s))
    step_s = max(found.launched.recent_step_s, 1e-9)
    pairs = effort.budget_s / 2 / step_s  # a pair is a plain step and a timestamped one
    rounds = max(FEWEST_ROUNDS, min(ROUNDS, int(pairs)))
    steps = max(1, min(MOST_STEPS, int(pairs / rounds)))
    lead = 0 if step_s > LONG_STEP_S else 1
    if not effort.in_place:
        found.in_place_absent = Absent("not asked for")
    for number in range(rounds):
        on_progress("layers in place", number / rounds)
        one_turn(conversation, found, steps, lead=lead)


def one_turn(conversation: Conversation, found: LayersFound, steps: int, *, lead: int = 1) -> None:
    """Run `steps` plain steps after an untimed lead, then as many timestamped ones if the backend has them."""
    found.plain_s.append(conversation.block(samples=steps, lead=lead).step_s)
    if found.in_place_absent is not None:
        return
    try:
        found.rounds.append(conversation.layers(steps))
    except JobFailed as failure:
        if failure.outcome != "unsupported":
            raise
        found.in_place_absent = Absent(failure.reason)


def _isolated(
    conversation: Conversation, job: Job, found: LayersFound, effort: LayersEffort, on_progress: OnProgress
) -> None:
    if job.model.graph.opaque:
        found.isolated = Absent("the parts of a module of your own are timed in place only")
        return
    try:
        found.isolated = time_isolated(
            conversation,
            job.model.graph,
            budget_s=effort.budget_s,
            on_gpu=found.launched.on_gpu,
            on_progress=on_progress,
        )
    except JobFailed as failure:
        if failure.outcome != "unsupported":
            raise
        found.isolated = Absent(failure.reason)


def _traced(conversation: Conversation, effort: LayersEffort) -> KernelTrace | Absent:
    path = "" if effort.trace_path is None else str(effort.trace_path.absolute())
    try:
        return conversation.trace(TRACED_STEPS, path)
    except JobFailed as failure:
        if failure.outcome != "unsupported":
            raise
        return Absent(failure.reason)
