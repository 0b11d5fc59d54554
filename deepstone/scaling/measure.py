"""Measures communication between processes: every operation in every size on every transport, in turns.

    launch   all teams start
             ├ calibrate: each transfer is checked, and timed a little (first launch)
             ├ round    sizes and operations in random order; of each, one block on every transport
             ├ round    …                      a block: barrier, one transfer that is not timed, the timed ones
             ├ computing and communication beside each other, if asked for
             └ each transfer is checked again (last launch); all teams end
    launch   fresh processes …

While one team measures, the processes of the others sleep and the controller waits. Transports are compared by ratios
within a launch: what differs from launch to launch is part of the interval.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from statistics import median
from typing import Final

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.errors import MissingError
from deepstone.measure.noise import noise_doubts
from deepstone.results.comm import CommWire
from deepstone.results.doubt import Doubt
from deepstone.runner.conversation import JobFailed
from deepstone.runner.job import Job
from deepstone.runner.measurement import OnProgress, no_progress, noise_around
from deepstone.runner.muster import launcher_of
from deepstone.runner.team import Team, talking_to_team
from deepstone.runner.wire import (
    Window,
    hidden_by_others,
    sent_in,
    sent_per_step,
    sent_while_idle,
    why_not_counted,
)
from deepstone.scaling.lane import UNDER_LOAD, Lane, Measured
from deepstone.scaling.turns import Key, Pace, Schedule, fewest_rounds, schedule, shortest_s
from deepstone.scaling.under_load import LONGEST_TRANSFER_S, measure_under_load
from deepstone.setups.transfers import TRANSFERS

_STEPS_UNTIL_BUCKETS_STAY: Final = 3  # DistributedDataParallel arranges them anew after its first step
_SHORT_S: Final = 0.02
_MOST_OF_BUDGET: Final = 1.5
_LARGEST_SHARE: Final = 0.5  # of the budget, that one size may take
_WIRE_S: Final = 0.1
_MOST_ON_WIRE: Final = 20
_WIRE_WINDOWS: Final = 3  # others use loopback too; between nodes one is enough


class CommPlan(Struct, frozen=True, kw_only=True):
    """`sizes` is empty for a model, whose own buckets are sent. `compute`: whose steps run under load. `by_name`: the
    operations were asked for, so that one which a transport lacks is a failure."""

    jobs: tuple[Job, ...]
    operations: tuple[str, ...]
    sizes: tuple[int, ...]
    compute: str
    launches: int = 3
    budget_s: float = 20.0
    timeout_s: float = 900.0
    under_load: bool = False
    by_name: bool = True

    @property
    def of_model(self) -> bool:
        return not self.sizes


class CommMeasured(Struct, frozen=True, kw_only=True):
    """What was measured so far: the lanes fill while `measure_comm` runs, and keep it if that is interrupted."""

    lanes: tuple[Lane, ...]
    doubts: list[Doubt]

    @staticmethod
    def nothing_yet(plan: CommPlan) -> CommMeasured:
        return CommMeasured(lanes=tuple(Lane(job=job) for job in plan.jobs), doubts=[])

    @property
    def launches(self) -> int:
        """How many launches timed something."""
        cells = [cell for lane in self.lanes for cell in lane.cells.values()]
        return max((sum(map(bool, cell.launches)) for cell in cells), default=0)


class _Live(Struct, frozen=True, kw_only=True):
    """A lane whose processes run."""

    number: int
    lane: Lane
    team: Team


def measure_comm(plan: CommPlan, measured: CommMeasured, on_progress: OnProgress = no_progress) -> None:
    for launch in range(plan.launches):
        able = [number for number, lane in enumerate(measured.lanes) if lane.failure is None]
        for together in _groups(plan, able):
            session = _Session(plan, measured.lanes, launch, on_progress)
            measured.doubts.extend(session.run(together))


def _groups(plan: CommPlan, lanes: Sequence[int]) -> list[list[int]]:
    """Lanes whose processes live side by side. Slurm may have room for one job at a time, so there they take turns."""
    if any(launcher_of(plan.jobs[number]) == "srun" for number in lanes):
        return [[number] for number in lanes]
    return [list(lanes)]


class _Session:
    """One launch of some lanes."""

    def __init__(self, plan: CommPlan, lanes: Sequence[Lane], launch: int, on_progress: OnProgress) -> None:
        self._plan = plan
        self._lanes = lanes
        self._launch = launch
        self._on_progress = on_progress
        self._order = random.Random(launch)
        self._done, self._blocks = 0, 1

    def run(self, numbers: Sequence[int]) -> list[Doubt]:
        with ExitStack() as stack:
            live = list(self._started(numbers, stack))
            if not live:
                return []
            with closing(noise_around([each.lane.started for each in live])) as noise:
                before = noise.now()
                self._measure(live)
                after = noise.now()
            for each in self._still(live):
                self._try(each, each.team.close)
            return noise_doubts(before, after)

    def _started(self, numbers: Sequence[int], stack: ExitStack) -> Iterator[_Live]:
        for number in numbers:
            lane = self._lanes[number]
            self._tell(f"starting {lane.title}")
            with ExitStack() as own:
                try:
                    team = own.enter_context(talking_to_team(lane.job, timeout_s=self._plan.timeout_s))
                    self._prepare(lane, team)
                except (JobFailed, MissingError) as error:
                    lane.failure = error
                    continue
                stack.push(own.pop_all())
                yield _Live(number=number, lane=lane, team=team)

    def _prepare(self, lane: Lane, team: Team) -> None:
        if lane.job.broken_rule:
            raise JobFailed("unsupported", lane.job.broken_rule, stage="rules")
        lane.started.hello = team.hello()
        lane.started.pids = team.pids
        lane.started.prepared = team.prepare()
        buckets: tuple[int, ...] = ()
        if self._plan.of_model:
            team.block(samples=_STEPS_UNTIL_BUCKETS_STAY)
            buckets = tuple(team.buckets())
            if not sum(buckets):
                raise JobFailed("unsupported", "the framework does not tell its buckets of gradients", stage="buckets")
        lane.describe(team, buckets)

    def _measure(self, live: Sequence[_Live]) -> None:
        for each in live:
            self._try(each, lambda each=each: self._check_all(each))
        plan = self._schedule(self._still(live))
        self._blocks = max(1, sum(turns.rounds for turns in plan.turns.values()))
        enough, begin_s = fewest_rounds(self._plan.launches), time.monotonic()
        for number in range(plan.rounds):
            spent_s = time.monotonic() - begin_s
            if number >= enough and spent_s > _MOST_OF_BUDGET * self._plan.budget_s / self._plan.launches:
                break  # a busy machine: what was calibrated does not hold
            self._round(self._still(live), plan, number)
        for each in self._still(live):
            self._try(each, lambda each=each: self._afterwards(each, plan))

    def _check_all(self, each: _Live) -> None:
        """Check every transfer. In the first launch, find out how long each one takes."""
        lane = each.lane
        for operation in self._plan.operations:
            sizes = self._sizes(lane, operation)
            for at, size in enumerate(sizes):
                key = operation, size
                self._tell(f"checking {operation} on {lane.title}")
                self._check(each, key)
                if operation in lane.unsupported:
                    break
                if self._launch == 0 or key not in lane.paces:
                    lane.paces[key] = _timed(each.team, lane.cells[key].program)
                elif lane.paces[key].once_s < _SHORT_S:
                    _timed(each.team, lane.cells[key].program)  # so that no launch begins cold
                following = sizes[at + 1 :]
                if following and self._is_too_long(lane.paces[key].once_s * following[0] / size):
                    lane.left_out[operation] = list(following)
                    break

    def _sizes(self, lane: Lane, operation: str) -> list[int]:
        assert lane.facts is not None
        asked = lane.facts.step_buckets if self._plan.of_model else self._plan.sizes
        processes, transfer = lane.world.processes, TRANSFERS[operation]
        missing = lane.left_out.get(operation, ())
        return sorted({whole for size in asked if (whole := transfer.whole_bytes(size, processes)) not in missing})

    def _is_too_long(self, once_s: float) -> bool:
        if self._plan.of_model:
            return False  # a sum over some of the buckets says nothing
        return shortest_s(once_s, self._plan.launches) > _LARGEST_SHARE * self._plan.budget_s

    def _check(self, each: _Live, key: tuple[str, int]) -> None:
        replies = each.team.ask(lambda rank: rank.transfer(*key))
        if replies[0].unsupported:
            each.lane.unsupported[key[0]] = replies[0].unsupported
            return
        cell = each.lane.cells.setdefault(key, Measured())
        cell.program = replies[0].program
        wrong = [f"rank {rank}: {reply.wrong}" for rank, reply in enumerate(replies) if reply.wrong]
        cell.wrong = cell.wrong or "; ".join(wrong)

    def _schedule(self, live: Sequence[_Live]) -> Schedule:
        paces = {
            Key(lane=each.number, operation=operation, bytes=size): each.lane.paces[operation, size]
            for each in live
            for (operation, size), cell in each.lane.cells.items()
            if not cell.wrong and size not in each.lane.left_out.get(operation, ())
        }
        on_gpu = any(each.lane.started.on_gpu for each in live)
        share = len(live) / max(1, sum(lane.failure is None for lane in self._lanes))
        budget_s = self._plan.budget_s * share
        if self._plan.of_model:
            least_s = sum(shortest_s(pace.once_s, self._plan.launches) for pace in paces.values())
            budget_s = max(budget_s, 1.01 * least_s)
        found = schedule(paces, budget_s=budget_s, launches=self._plan.launches, on_gpu=on_gpu)
        for key in found.left_out:
            self._lanes[key.lane].left_out.setdefault(key.operation, []).append(key.bytes)
        return found

    def _round(self, live: Sequence[_Live], plan: Schedule, number: int) -> None:
        """Of each operation and size, one block on every lane; another lane is first in every round."""
        wanted = sorted({(key.operation, key.bytes) for key in plan.turns})
        first = number % max(1, len(live))
        lanes = [*live[first:], *live[:first]]
        for key in self._order.sample(wanted, len(wanted)):
            for each in lanes:
                if each.lane.failure is None:
                    self._try(each, lambda each=each, key=key: self._block(each, key, plan, number))

    def _block(self, each: _Live, key: tuple[str, int], plan: Schedule, number: int) -> None:
        operation, size = key
        turns = plan.turns.get(Key(lane=each.number, operation=operation, bytes=size))
        if turns is None or number >= turns.rounds:
            return
        cell = each.lane.cells[key]
        cell.begin_launch(self._launch)
        block = each.team.block(samples=turns.samples, steps_per_sample=turns.steps_per_sample, program=cell.program)
        ways = 2 if operation == "p2p" else 1  # there and back
        cell.launches[self._launch].append([step_s / ways for step_s in block.step_s])
        shortest_s = min(block.step_s) * turns.steps_per_sample
        each.lane.shortest_sample_s = min(each.lane.shortest_sample_s, shortest_s)
        self._done += 1
        self._tell(f"{TRANSFERS[operation].title} on {each.lane.title}", self._done / self._blocks)

    def _afterwards(self, each: _Live, plan: Schedule) -> None:
        """What is measured once blocks are done: the wire, computing beside it, and whether results are still right."""
        lane = each.lane
        lane.clock_error_s = max(lane.clock_error_s, each.team.clocks.error_s)
        mine = [(key.operation, key.bytes) for key in plan.turns if key.lane == each.number]
        for operation in self._plan.operations if self._launch == 0 else ():
            sizes = [size for name, size in mine if name == operation]
            self._tell(f"bytes on the wire of {lane.title}", 1.0)
            if sizes:
                lane.wires[operation] = _wire(
                    each.team, lane, operation, _largest_short(lane, operation, sizes, _WIRE_S)
                )
        first = [size for name, size in mine if name == self._plan.operations[0]]
        if self._plan.under_load and first and UNDER_LOAD not in lane.unsupported:
            self._under_load(each, first)
        for key in mine if self._launch == self._plan.launches - 1 else ():
            self._tell(f"checking {key[0]} on {lane.title}", 1.0)
            self._check(each, key)

    def _under_load(self, each: _Live, sizes: Sequence[int]) -> None:
        """With the largest message that does not take long."""
        lane, operation = each.lane, self._plan.operations[0]
        lane.load_bytes = lane.load_bytes or _largest_short(lane, operation, sizes, LONGEST_TRANSFER_S)
        key = operation, lane.load_bytes
        self._tell(f"computing beside {operation} on {lane.title}", 1.0)
        found = measure_under_load(
            each.team,
            lane.cells[key].program,
            lane.paces[key].once_s,
            budget_s=self._plan.budget_s / self._plan.launches,
            fewest_rounds=fewest_rounds(self._plan.launches),
        )
        if isinstance(found, Absent):
            lane.unsupported[UNDER_LOAD] = found.reason
        else:
            lane.loads += found

    def _try(self, each: _Live, do: Callable[[], object]) -> None:
        """What fails, fails for its own lane; the others go on."""
        try:
            do()
        except (JobFailed, MissingError) as error:
            each.lane.failure = error

    def _still(self, live: Sequence[_Live]) -> list[_Live]:
        return [each for each in live if each.lane.failure is None]

    def _tell(self, stage: str, share: float = 0.0) -> None:
        self._on_progress(stage, (self._launch + share) / self._plan.launches)


def _timed(team: Team, program: str) -> Pace:
    """Roughly how long one takes. The first ones are slow, and on a busy machine any one may be."""
    first_s = team.block(samples=1, program=program).step_s
    if min(first_s) > _SHORT_S:
        first_s += team.block(samples=2, program=program).step_s
    if min(first_s) <= _SHORT_S:
        first_s = team.block(samples=7, program=program).step_s
    return Pace(once_s=median(first_s), least_s=max(1e-9, min(first_s)))


def _largest_short(lane: Lane, operation: str, sizes: Sequence[int], limit_s: float) -> int:
    """The largest size that takes no longer than this; the smallest if all do."""
    return max((size for size in sizes if lane.paces[operation, size].once_s <= limit_s), default=min(sizes))


def _wire(team: Team, lane: Lane, operation: str, size: int) -> CommWire | Absent:
    world = lane.world
    uncounted = why_not_counted(team.transport, world.nodes)
    if uncounted:
        return Absent(uncounted)
    program, once_s = lane.cells[operation, size].program, lane.paces[operation, size].once_s
    count = max(1, min(_MOST_ON_WIRE, int(_WIRE_S / max(once_s, 1e-9))))
    own: list[Window] = []
    idle: list[Window] = []
    for _ in range(1 if world.nodes > 1 else _WIRE_WINDOWS):
        own.append(sent_in(team, program, count))
        idle.append(sent_while_idle(team, min(own[-1].took_s, _WIRE_S)))
    ways = 2 if operation == "p2p" else 1
    needed = TRANSFERS[operation].needed_bytes(size, processes=world.processes, nodes=world.nodes)
    hidden = hidden_by_others(own, idle, needed * ways) if world.nodes == 1 else ""
    if hidden:
        return Absent(hidden)
    sent = sent_per_step(own, idle) / ways
    return CommWire(bytes=size, sent_bytes=sent, needed_bytes=needed, ratio=sent / needed)
