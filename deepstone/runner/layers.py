"""Where the time of a step goes, layer by layer.

    prepare ─▶ [ plain steps │ marked or traced steps ] × rounds ─▶ each layer alone ─▶ kernels ─▶ close

Plain and marked steps take turns in one process, so that the sum of the parts is held against the step it is of.
Isolated times come after, and are never presented as the step.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepstone.absent import Absent
from deepstone.runner.conversation import Conversation, InPlaceTimes, JobFailed, talking_to_worker
from deepstone.runner.isolated import IsolatedTimes, time_alone
from deepstone.runner.job import Job
from deepstone.runner.launch import Effort, Launched, Tell, calibrate, noise_around, silent, start

ROUNDS = 8
FEWEST_ROUNDS = 4
MOST_STEPS = 25  # in a round
LONG_STEP_S = 0.5  # beyond it what a pause or other code left in the caches does not show
TRACED_STEPS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class LayersEffort:
    """How long to look: `budget_s` for steps in place, and as long again for layers alone."""

    budget_s: float = 20.0
    timeout_s: float = 1800.0
    in_place: bool = True
    isolated: bool = True
    kernels: bool = False
    trace_path: Path | None = None


@dataclass(kw_only=True, slots=True)
class LayersFound:
    """What was measured, still as it came."""

    launched: Launched = field(default_factory=Launched)
    plain_s: list[list[float]] = field(default_factory=list[list[float]])  # steps by round
    rounds: list[InPlaceTimes] = field(default_factory=list[InPlaceTimes])
    in_place_absent: Absent | None = None
    isolated: dict[str, IsolatedTimes] | Absent = field(default_factory=lambda: Absent("not asked for"))
    trace: dict[str, Any] | Absent = field(default_factory=lambda: Absent("not asked for; --kernels gives them"))


def find_layers(job: Job, effort: LayersEffort, tell: Tell = silent) -> LayersFound:
    """Raises JobFailed when the job itself does not run, MissingError when something is not there."""
    reason = job.broken_rule
    if reason:
        raise JobFailed("unsupported", reason, stage="plan")
    found = LayersFound()
    with talking_to_worker(job, timeout_s=effort.timeout_s) as conversation:
        start(conversation, job, found.launched, tell)
        with closing(noise_around([found.launched])) as noise:
            before = noise.now()
            _in_turns(conversation, found, effort, tell)
            found.launched.noise = (before, noise.now())
        if effort.isolated:
            _alone(conversation, job, found, effort, tell)
        if effort.kernels or effort.trace_path is not None:
            tell("kernels", 1.0)
            found.trace = _traced(conversation, effort)
        conversation.close()
    return found


def _in_turns(conversation: Conversation, found: LayersFound, effort: LayersEffort, tell: Tell) -> None:
    calibrate(conversation, found.launched, Effort(budget_s=effort.budget_s))
    step_s = max(found.launched.recent_step_s, 1e-9)
    pairs = effort.budget_s / 2 / step_s  # of a plain step and a marked one
    rounds = max(FEWEST_ROUNDS, min(ROUNDS, int(pairs)))
    steps = max(1, min(MOST_STEPS, int(pairs / rounds)))
    lead = 0 if step_s > LONG_STEP_S else 1
    if not effort.in_place:
        found.in_place_absent = Absent("not asked for")
    for number in range(rounds):
        tell("layers in place", number / rounds)
        one_turn(conversation, found, steps, lead=lead)


def one_turn(conversation: Conversation, found: LayersFound, steps: int, *, lead: int = 1) -> None:
    """So many plain steps, after a lead that is not looked at, and as many marked ones where there are any."""
    found.plain_s.append(conversation.block(samples=steps, lead=lead).step_s)
    if found.in_place_absent is not None:
        return
    try:
        found.rounds.append(conversation.layers(steps))
    except JobFailed as failure:
        if failure.outcome != "unsupported":
            raise
        found.in_place_absent = Absent(failure.reason)


def _alone(conversation: Conversation, job: Job, found: LayersFound, effort: LayersEffort, tell: Tell) -> None:
    if job.model.graph.opaque:
        found.isolated = Absent("the parts of a module of your own are timed in place only")
        return
    try:
        found.isolated = time_alone(
            conversation, job.model.graph, budget_s=effort.budget_s, on_gpu=found.launched.on_gpu, tell=tell
        )
    except JobFailed as failure:
        if failure.outcome != "unsupported":
            raise
        found.isolated = Absent(failure.reason)


def _traced(conversation: Conversation, effort: LayersEffort) -> dict[str, Any] | Absent:
    path = "" if effort.trace_path is None else str(effort.trace_path.absolute())
    try:
        return {"steps": TRACED_STEPS, **conversation.trace(TRACED_STEPS, path)}
    except JobFailed as failure:
        if failure.outcome != "unsupported":
            raise
        return Absent(failure.reason)
