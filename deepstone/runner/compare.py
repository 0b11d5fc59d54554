"""Two setups against each other in one interleaved run, so that a noisy machine cannot fake a winner.

    pair 1   A and B started fresh   A B · B A · A B · …    blocks in random order
    pair 2   B and A started fresh   B A · A B · B A · …    start order alternates
    …        at least eight pairs: launches of one setup differ by more than steps within a launch do

Where two workers do not fit in memory together, whole processes alternate instead, and the records say so.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Final, Literal

import psutil

from deepstone.absent import Absent
from deepstone.measure.effort import Effort
from deepstone.measure.ratios import Ratio, verdict_of
from deepstone.measure.statistics import Quantity, ratio_of_pairs
from deepstone.measure.steady_state import settled
from deepstone.results import record as records
from deepstone.results.record import Draft
from deepstone.results.sameness import SidesChecked
from deepstone.runner.assemble import draft, now
from deepstone.runner.conversation import Conversation, JobFailed, talking_to_worker
from deepstone.runner.gpu_around import GpuAround, watching_gpu
from deepstone.runner.job import Job
from deepstone.runner.measurement import (
    Launched,
    OnProgress,
    calibrate,
    finish,
    look_at_the_end,
    look_before_last,
    no_progress,
    noise_around,
    start,
)
from deepstone.runner.same_training import not_the_same_training

FEWEST_PAIRS: Final = 8
ROUNDS: Final = 6
_SAME_FRAMEWORK: Final = Absent("both sides run the same framework")
_LEAD_IN_S: Final = 0.02  # untimed steps after the other side ran: its data is still in the caches
_OVERHEAD_BYTES: Final = 3 * 2**29  # a framework's own memory, generously
_NEED_MARGIN: Final = 1.5  # workspaces, fragmentation


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """`time_ratio`: time per sample of A over that of B; None when a side failed or did not do what was timed, and
    then there is no verdict."""

    a: Draft | None
    b: Draft | None
    time_ratio: Quantity | None
    verdict: str
    pairing: str
    refusal: str = ""  # why there is no ratio though both sides were measured


@dataclass(kw_only=True, slots=True)
class _Side:
    job: Job
    launches: list[Launched] = field(default_factory=list[Launched])
    failure: JobFailed | None = None
    conversation: Conversation | None = None
    gpu: GpuAround = field(default_factory=GpuAround)
    steps_per_sample: int = 1
    samples: int = 1
    lead: int = 0

    @property
    def launched(self) -> Launched:
        return self.launches[-1]

    def talk(self) -> Conversation:
        assert self.conversation is not None
        return self.conversation


class _SideFailed(Exception):
    def __init__(self, side: _Side, failure: JobFailed) -> None:
        super().__init__(failure.reason)
        self.side = side
        self.failure = failure


def compare_jobs(
    a: Job,
    b: Job,
    effort: Effort,
    *,
    pairs: int = FEWEST_PAIRS,
    on_progress: OnProgress = no_progress,
    seed: int | None = None,
    sameness: SidesChecked | Absent = _SAME_FRAMEWORK,
) -> Comparison:
    """Measure both and judge. `effort.budget_s` is the timed time of each side over all pairs. Raises MissingError.

    `sameness` goes into the records: what shows that both sides compute the same.
    """
    started_at = now()
    sides = (_Side(job=a), _Side(job=b))
    together = fit_together(a, b)
    order = random.Random(seed)
    try:
        for side in sides:
            reason = side.job.broken_rule
            if reason:
                raise _SideFailed(side, JobFailed("unsupported", reason, stage="plan"))
        for pair in range(pairs):
            turn = sides if pair % 2 == 0 else sides[::-1]
            told = _pair_teller(on_progress, pair, pairs)
            with watching_gpu(a if a.request["device"] != "cpu" else b) as gpu:
                for side in sides:
                    side.gpu = gpu
                if together:
                    _pair_together(turn, effort, pairs, order, told)
                else:
                    _pair_apart(turn, effort, pairs, told)
    except _SideFailed as failed:
        failed.side.failure = failed.failure
        return _failed(sides, effort, started_at, together)
    return _judged(sides, effort, started_at, together, sameness)


def fit_together(a: Job, b: Job) -> bool:
    """Whether both workers can be in memory at once, by their analytic need; not where that is not known."""
    needs = [job.need_bytes for job in (a, b)]
    known = [need for need in needs if not isinstance(need, Absent)]
    if len(known) < len(needs):
        return False
    need = sum(_NEED_MARGIN * need + _OVERHEAD_BYTES for need in known)
    room: list[float] = [psutil.virtual_memory().available]
    if any(job.request["device"] != "cpu" for job in (a, b)):
        room += a.machine.gpu_memory_bytes
    return need <= 0.9 * min(room)


def _pair_together(
    turn: Sequence[_Side], effort: Effort, pairs: int, order: random.Random, on_progress: OnProgress
) -> None:
    with ExitStack() as stack:
        for side in turn:
            _begin(side, stack, effort, on_progress)
        with closing(noise_around([side.launched for side in turn])) as noise:
            for side in turn:
                _warm_up(side, effort, pairs)
            before = noise.now()
            for number in range(ROUNDS):
                on_progress("measuring", number / ROUNDS)
                for side in order.sample(list(turn), len(turn)):
                    _round(side, last=number == ROUNDS - 1)
            after = noise.now()
        for side in turn:
            side.launched.noise = (before, after)
            _end(side)


def _pair_apart(turn: Sequence[_Side], effort: Effort, pairs: int, on_progress: OnProgress) -> None:
    for side in turn:
        with ExitStack() as stack:
            _begin(side, stack, effort, on_progress)
            with closing(noise_around([side.launched])) as noise:
                _warm_up(side, effort, pairs)
                before = noise.now()
                for number in range(ROUNDS):
                    on_progress("measuring", number / ROUNDS)
                    _round(side, last=number == ROUNDS - 1)
                side.launched.noise = (before, noise.now())
            _end(side)


def _begin(side: _Side, stack: ExitStack, effort: Effort, on_progress: OnProgress) -> None:
    side.launches.append(Launched(gpu=side.gpu))
    try:
        side.conversation = stack.enter_context(talking_to_worker(side.job, timeout_s=effort.timeout_s))
        start(side.conversation, side.job, side.launched, on_progress)
    except JobFailed as failure:
        raise _SideFailed(side, failure) from None


def _warm_up(side: _Side, effort: Effort, pairs: int) -> None:
    """Blocks until the samples have settled, for no longer than the pair's own measuring takes."""
    share_s = effort.budget_s / pairs
    part = Effort(target_share=effort.target_share, budget_s=share_s)
    try:
        side.steps_per_sample, per_block = calibrate(side.talk(), side.launched, part)
        while not settled(side.launched.samples) and sum(block.total_s for block in side.launched.blocks) < share_s:
            side.launched.blocks.append(side.talk().block(samples=per_block, steps_per_sample=side.steps_per_sample))
    except JobFailed as failure:
        raise _SideFailed(side, failure) from None
    side.launched.warmup_given = len(side.launched.samples)
    step_s = side.launched.recent_step_s
    side.samples = max(1, round(share_s / ROUNDS / max(step_s * side.steps_per_sample, 1e-9)))
    side.lead = math.ceil(_LEAD_IN_S / max(step_s, 1e-9)) if step_s < 10 * _LEAD_IN_S else 0


def _round(side: _Side, *, last: bool) -> None:
    try:
        if last:
            look_before_last(side.talk(), side.launched)
        block = side.talk().block(samples=side.samples, steps_per_sample=side.steps_per_sample, lead=side.lead)
    except JobFailed as failure:
        raise _SideFailed(side, failure) from None
    side.launched.blocks.append(block)


def _end(side: _Side) -> None:
    side.launched.stopped = f"{ROUNDS} rounds"
    side.launched.energy = Absent("not measured in a comparison, where both sides share the device")
    try:
        look_at_the_end(side.talk(), side.launched)
        finish(side.talk(), side.launched)
    except JobFailed as failure:
        raise _SideFailed(side, failure) from None


def _judged(
    sides: tuple[_Side, _Side], effort: Effort, started_at: str, together: bool, sameness: SidesChecked | Absent
) -> Comparison:
    a, b = sides
    pairing = "together" if together else "alternating processes"
    refusal = not_the_same_training((a.job, a.launches), (b.job, b.launches))
    if refusal:
        drafts = [draft(side.job, side.launches, started_at=started_at, effort=effort) for side in sides]
        return Comparison(a=drafts[0], b=drafts[1], time_ratio=None, verdict="", pairing=pairing, refusal=refusal)
    per_sample = [
        (_per_sample(launched_a, a.job.batch), _per_sample(launched_b, b.job.batch))
        for launched_a, launched_b in zip(a.launches, b.launches, strict=True)
    ]
    time_ratio = ratio_of_pairs(per_sample)
    verdict = verdict_of(Ratio.of_times(time_ratio))
    both: tuple[tuple[Literal["a", "b"], _Side, _Side], ...] = (("a", a, b), ("b", b, a))
    drafts = [
        draft(
            side.job,
            side.launches,
            started_at=started_at,
            effort=effort,
            comparison=records.Comparison(
                side=name,
                other_job=other.job.id,
                ratio=time_ratio,
                verdict=verdict,
                pairs=time_ratio.n,
                pairing=pairing,
                sameness=sameness,
            ),
        )
        for name, side, other in both
    ]
    return Comparison(a=drafts[0], b=drafts[1], time_ratio=time_ratio, verdict=verdict, pairing=pairing)


def _per_sample(launched: Launched, batch: int) -> list[list[float]]:
    return [[step_s / batch for step_s in block] for block in launched.steady()]


def _failed(sides: Sequence[_Side], effort: Effort, started_at: str, together: bool) -> Comparison:
    """What was measured before the failure is kept on both sides."""
    drafts: list[Draft | None] = []
    for side in sides:
        complete = [launched for launched in side.launches if launched.stopped]
        if side.failure is not None:
            drafts.append(draft(side.job, side.launches, started_at=started_at, effort=effort, failure=side.failure))
        elif complete:
            drafts.append(draft(side.job, complete, started_at=started_at, effort=effort))
        else:
            drafts.append(None)
    pairing = "together" if together else "alternating processes"
    return Comparison(a=drafts[0], b=drafts[1], time_ratio=None, verdict="", pairing=pairing)


def _pair_teller(on_progress: OnProgress, pair: int, pairs: int) -> OnProgress:
    return lambda stage, share: on_progress(f"pair {pair + 1} of {pairs}, {stage}", (pair + share) / pairs)
