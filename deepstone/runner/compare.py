"""Compares setups in one interleaved run, so that a noisy machine cannot fake a winner.

    group 1   A, B, C started fresh   A C B · B A C · C B A · …    blocks in random order
    group 2   B, A, C started fresh   B A C · A B C · C A B · …    another start order
    …         as many groups as the noise requires: launches of one setup differ more than steps within a launch

A group of two sides is a pair. If the workers do not fit in memory together, whole processes alternate instead, and the
records say so.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Final

import psutil
from msgspec import Struct, field

from deepstone.absent import Absent
from deepstone.measure.effort import Effort
from deepstone.measure.sequential import LOOKS, MOST_GROUPS, SIDES, Group, SidesRatio, ranking, ratios_of_sides
from deepstone.measure.steady_state import settled
from deepstone.results import record as records
from deepstone.results.record import Draft
from deepstone.results.sameness import Comparable, SidesChecked
from deepstone.runner.assemble import draft, now
from deepstone.runner.conversation import JobFailed
from deepstone.runner.gpu_around import GpuAround, gpu_use_around
from deepstone.runner.job import Job
from deepstone.runner.measurement import (
    Launched,
    OnProgress,
    calibrate,
    finish,
    no_progress,
    noise_around,
    snapshot_before_last,
    snapshots_at_end,
    start,
)
from deepstone.runner.same_training import established, not_the_same_training
from deepstone.runner.team import Talk, talking_to
from deepstone.setups.axes import AUTO

FEWEST_PAIRS: Final = 8  # if the user fixes the number
ROUNDS: Final = 6
_LEAD_IN_S: Final = 0.02  # untimed steps after another side ran: its data is still in the caches
_OVERHEAD_BYTES: Final = 3 * 2**29  # upper estimate of a framework's own memory
_NEED_MARGIN: Final = 1.5  # workspaces, fragmentation


class Comparison(Struct, frozen=True, kw_only=True):
    """`ratios`: one for every two sides; empty, without a verdict, if a side failed or did not train as timed.
    `ranks`: the sides, fastest first; sides without a shown difference share a rank."""

    sides: tuple[Draft | None, ...]
    ratios: tuple[SidesRatio, ...] = ()
    ranks: Sequence[Sequence[int]] = ()
    pairing: str
    stopped: str = ""  # why there are no more groups
    refusal: str = ""  # why there is no ratio although all sides were measured
    established: str = ""  # what is known of the sameness of a module of one's own


class _Side(Struct, kw_only=True):
    job: Job
    launches: list[Launched] = field(default_factory=list[Launched])
    failure: JobFailed | None = None
    conversation: Talk | None = None
    gpu: GpuAround = field(default_factory=GpuAround)
    steps_per_sample: int = 1
    samples: int = 1
    lead: int = 0

    @property
    def launched(self) -> Launched:
        return self.launches[-1]

    def talk(self) -> Talk:
        assert self.conversation is not None
        return self.conversation


class _SideFailed(Exception):
    def __init__(self, side: _Side, failure: JobFailed) -> None:
        super().__init__(failure.reason)
        self.side = side
        self.failure = failure


def compare_jobs(
    jobs: Sequence[Job],
    effort: Effort,
    *,
    groups: int | None = None,
    on_progress: OnProgress = no_progress,
    on_group: Callable[[float], None] = lambda _took_s: None,
    seed: int | None = None,
    checks: Sequence[Comparable] = (),
    on_cut_off: Callable[[Sequence[Draft]], None] = lambda _drafts: None,
) -> Comparison:
    """Measure all sides and judge. `effort.budget_s` is the timed time of each side over all groups. Raises
    MissingError.

    `groups`: a fixed number; otherwise as many as needed. `on_group` receives the seconds that each group took.
    `checks` goes into the records: the evidence, across frameworks, that all sides compute the same. `on_cut_off`
    receives what was measured to its end before a signal, or an error of ours, ends the comparison.
    """
    started_at = now()
    sides = tuple(_Side(job=job) for job in jobs)
    together = fit_together(*jobs)
    pairing = "together" if together else "alternating processes"
    order = random.Random(seed)
    most = groups or MOST_GROUPS
    share_s = effort.budget_s / most
    found: tuple[SidesRatio, ...] = ()
    try:
        for side in sides:
            reason = side.job.broken_rule
            if reason:
                raise _SideFailed(side, JobFailed("unsupported", reason, stage="plan"))
        for group in range(most):
            began = time.monotonic()
            turn = _turn(sides, group, order)
            group_progress = _progress_of_group(on_progress, group, most, "pair" if len(sides) == 2 else "group")
            with gpu_use_around(next((job for job in jobs if job.request["device"] != "cpu"), jobs[0])) as gpu:
                for side in sides:
                    side.gpu = gpu
                if together:
                    _group_together(turn, effort, share_s, order, group_progress)
                else:
                    _group_apart(turn, effort, share_s, group_progress)
            on_group(time.monotonic() - began)
            if (group + 1 in LOOKS and groups is None) or group + 1 == most:
                found = ratios_of_sides(_groups(sides), looks=1 if groups else len(LOOKS))
                if groups is None and all(ratio.is_settled for ratio in found):
                    break
    except _SideFailed as failed:
        failed.side.failure = failed.failure
        return Comparison(sides=_failed(sides, effort, started_at), pairing=pairing)
    except BaseException:
        on_cut_off([each for each in _failed(sides, effort, started_at) if each is not None])
        raise
    stopped = _why_stopped(len(sides[0].launches), found, fixed=groups is not None)
    return _judged(sides, found, effort, started_at, pairing, stopped, checks)


def fit_together(*jobs: Job) -> bool:
    """Whether all workers fit in memory at once, by their analytic need; False if that is not known, and where one has
    a power limit, which would be that of all."""
    if any(job.request["power_limit"] != AUTO for job in jobs):
        return False
    needs = [job.need_bytes for job in jobs]
    known = [need for need in needs if not isinstance(need, Absent)]
    if len(known) < len(needs):
        return False
    need = sum(_NEED_MARGIN * need + _OVERHEAD_BYTES for need in known)
    room: list[float] = [psutil.virtual_memory().available]
    if any(job.request["device"] != "cpu" for job in jobs):
        room += jobs[0].machine.gpu_memory_bytes
    return need <= 0.9 * min(room)


def _turn(sides: Sequence[_Side], group: int, order: random.Random) -> Sequence[_Side]:
    """Return the order in which workers start: two sides take turns in starting first."""
    if len(sides) > 2:
        return order.sample(list(sides), len(sides))
    return sides if group % 2 == 0 else sides[::-1]


def _why_stopped(groups: int, found: Sequence[SidesRatio], *, fixed: bool) -> str:
    what = "pairs" if len(found) == 1 else "groups"
    if fixed:
        return f"{groups} {what}, as asked for"
    if all(ratio.is_settled for ratio in found):
        return f"settled after {groups} of at most {MOST_GROUPS} {what}"
    return f"not settled after {groups} {what}, the most that are taken"


def _groups(sides: Sequence[_Side]) -> list[Group]:
    """Return, for each group, the time per sample of each side."""
    return [
        [_per_sample(side.launches[number], side.job.batch) for side in sides]
        for number in range(len(sides[0].launches))
    ]


def _group_together(
    turn: Sequence[_Side], effort: Effort, share_s: float, order: random.Random, on_progress: OnProgress
) -> None:
    with ExitStack() as stack:
        for side in turn:
            _begin(side, stack, effort, on_progress)
        with closing(noise_around([side.launched for side in turn])) as noise:
            for side in turn:
                _warm_up(side, effort, share_s)
            before = noise.now()
            for number in range(ROUNDS):
                on_progress("measuring", number / ROUNDS)
                for side in order.sample(list(turn), len(turn)):
                    _round(side, last=number == ROUNDS - 1)
            after = noise.now()
        for side in turn:
            side.launched.noise = (before, after)
            _end(side)


def _group_apart(turn: Sequence[_Side], effort: Effort, share_s: float, on_progress: OnProgress) -> None:
    for side in turn:
        with ExitStack() as stack:
            _begin(side, stack, effort, on_progress)
            with closing(noise_around([side.launched])) as noise:
                _warm_up(side, effort, share_s)
                before = noise.now()
                for number in range(ROUNDS):
                    on_progress("measuring", number / ROUNDS)
                    _round(side, last=number == ROUNDS - 1)
                side.launched.noise = (before, noise.now())
            _end(side)


def _begin(side: _Side, stack: ExitStack, effort: Effort, on_progress: OnProgress) -> None:
    side.launches.append(Launched(gpu=side.gpu))
    try:
        side.conversation = stack.enter_context(talking_to(side.job, timeout_s=effort.timeout_s))
        start(side.conversation, side.job, side.launched, on_progress)
    except JobFailed as failure:
        raise _SideFailed(side, failure) from None


def _warm_up(side: _Side, effort: Effort, share_s: float) -> None:
    """Run blocks until the samples have settled, for at most as long as the group is measured."""
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
            snapshot_before_last(side.talk(), side.launched)
        block = side.talk().block(samples=side.samples, steps_per_sample=side.steps_per_sample, lead=side.lead)
    except JobFailed as failure:
        raise _SideFailed(side, failure) from None
    side.launched.blocks.append(block)


def _end(side: _Side) -> None:
    side.launched.stopped = f"{ROUNDS} rounds"
    side.launched.energy = Absent("not measured in a comparison, where all sides share the device")
    try:
        snapshots_at_end(side.talk(), side.launched)
        finish(side.talk(), side.job, side.launched)
    except JobFailed as failure:
        raise _SideFailed(side, failure) from None


def _judged(
    sides: Sequence[_Side],
    found: tuple[SidesRatio, ...],
    effort: Effort,
    started_at: str,
    pairing: str,
    stopped: str,
    checks: Sequence[Comparable],
) -> Comparison:
    timed = [(name, side.job, side.launches) for name, side in zip(SIDES.upper(), sides, strict=False)]
    refusal = not_the_same_training(timed)
    if refusal:
        drafts = [draft(side.job, side.launches, started_at=started_at, effort=effort) for side in sides]
        return Comparison(sides=tuple(drafts), pairing=pairing, stopped=stopped, refusal=refusal)
    known = established(timed)
    drafts: list[Draft] = []
    for number, side in enumerate(sides):
        other = 0 if number else 1
        ratio = next(each for each in found if {each.a, each.b} == {number, other})
        drafts.append(
            draft(
                side.job,
                side.launches,
                started_at=started_at,
                effort=effort,
                comparison=records.Comparison(
                    side=SIDES[number],
                    other_job=sides[other].job.id,
                    ratio=ratio.time_ratio,
                    verdict=ratio.verdict,
                    pairs=ratio.time_ratio.n,
                    pairing=pairing,
                    sameness=_sameness(checks, number, other, known),
                    stopped=stopped,
                ),
            )
        )
    return Comparison(
        sides=tuple(drafts),
        ratios=found,
        ranks=ranking(_groups(sides), found),
        pairing=pairing,
        stopped=stopped,
        established=known,
    )


def _sameness(checks: Sequence[Comparable], number: int, other: int, known: str) -> SidesChecked | Absent:
    """Return the checks that a side's record stores: its own and those of the side it is compared with. `known`: of a
    module of one's own."""
    if not checks:
        return Absent(known or "both sides run the same framework")
    a, b = (checks[side] for side in sorted((number, other)))
    return SidesChecked(ok=a.ok and b.ok, a=a, b=b)


def _per_sample(launched: Launched, batch: int) -> list[list[float]]:
    return [[step_s / batch for step_s in block] for block in launched.steady()]


def _failed(sides: Sequence[_Side], effort: Effort, started_at: str) -> tuple[Draft | None, ...]:
    """Return what each side measured before the failure."""
    drafts: list[Draft | None] = []
    for side in sides:
        complete = [launched for launched in side.launches if launched.stopped]
        if side.failure is not None:
            drafts.append(draft(side.job, side.launches, started_at=started_at, effort=effort, failure=side.failure))
        elif complete:
            drafts.append(draft(side.job, complete, started_at=started_at, effort=effort))
        else:
            drafts.append(None)
    return tuple(drafts)


def _progress_of_group(on_progress: OnProgress, group: int, most: int, what: str) -> OnProgress:
    return lambda stage, share: on_progress(f"{what} {group + 1} of {most}, {stage}", (group + share) / most)
