"""The processes of one job as the controller talks to them. Every request goes to all ranks at once, and what they
answer becomes the answer of the job, so that a job is measured as one worker is.

    block    steps of rank 0 end   ───┤────┤──────┤
             steps of rank 1 end   ──┤──────┤────┤
             steps of the job end  ───┤─────┤─────┤   results/together.py; on our clock, if need be: runner/clocks.py

A rank that fails takes the others with it, since they wait for it. The failure of the job names the one that began.

Where a driver makes the workers step (TensorFlow's servers), it alone is asked for steps of the job, and what it times
is the job. All others are watched meanwhile: one that ends is told at once.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final, Protocol, Self, TypeVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

import deepstone
from deepstone.absent import Absent
from deepstone.errors import MissingError
from deepstone.measure.doubts import RoundTrip
from deepstone.results.parallel import HostFacts, Launcher, RankFacts
from deepstone.results.together import latest_ends, steps_between
from deepstone.runner.blame import RankFailure, blamed
from deepstone.runner.clocks import Clocks
from deepstone.runner.conversation import BuildOptions, Conversation, JobFailed, Spares, talking_to_worker
from deepstone.runner.job import Job
from deepstone.runner.muster import Mustered, check_interface, launcher_of, mustered
from deepstone.runner.replies import Assignment, BlockTimes, Hello, Joined, MemoryPeak, Prepared, TracedStep
from deepstone.runner.turns import LONG_STEP_S
from deepstone.setups.axes import AUTO, PLACEMENTS, Value, format_cpus
from deepstone.setups.world import Role, World, placed_on

R = TypeVar("R")

PEERS_PATIENCE_S: Final = 3.0  # after one rank has failed, for the others to say what they know of it
# The same after a process that ended without a word: it began, and what others say changes nothing. MPI waits for it
# forever. With the grace of two seconds that the others have to end, a kill is told within five.
_KNOWN_PATIENCE_S: Final = 1.0
# A block may take so many times as long as its steps took before, and so much longer, before a rank counts as lost.
_BLOCK_PATIENCE: Final = 10.0
_BLOCK_GRACE_S: Final = 30.0
_FEWEST_SAMPLES: Final = 3
_HERE: Final = "127.0.0.1"
# Programs that do not need a driver: which ranks run them, from the first of a role to the first of another one.
_ON_THEIR_OWN: Final[Mapping[str, tuple[Role, Role]]] = {
    "forward": ("worker", "server"),
    "gradient": ("worker", "server"),
    "local": ("worker", "driver"),
    "update": ("server", "driver"),
}


class Talk(Protocol):
    """What measuring asks of a worker, or of several that train together."""

    round_trips: list[RoundTrip]

    @property
    def steps(self) -> int: ...

    @property
    def fewest_samples(self) -> int: ...

    def hello(self) -> Hello: ...

    def prepare(self, job: Job | None = None) -> Prepared: ...

    def build(self, changed: Mapping[str, Value], options: BuildOptions) -> None: ...

    def block(self, *, samples: int, steps_per_sample: int = 1, lead: int = 0, program: str = "") -> BlockTimes: ...

    def phases(self, steps: int) -> Mapping[str, list[float]]: ...

    def losses(self, steps: int) -> list[float]: ...

    def sample(self, kind: str, *, most: int) -> dict[str, NDArray[np.float64]]: ...

    def memory(self) -> Mapping[str, int | Absent]: ...

    def contradiction(self) -> str | None: ...

    def close(self) -> object: ...


class Team:
    """Talks to all ranks. Use it as a context manager, inside those of its ranks: leaving it ends what still runs."""

    def __init__(self, ranks: Sequence[Conversation], job: Job, started: Mustered | None = None) -> None:
        """`started`: what a launcher made of the job, where it was not us."""
        self.ranks = ranks
        self.job = job
        self.started = started
        self.world = World.of(job.request)
        self.round_trips: list[RoundTrip] = []
        self.pids: list[int] = []
        self.prepared: list[Prepared] = []  # by rank
        self.memories: list[Mapping[str, int | Absent]] = []  # by rank
        self.last_blocks: list[BlockTimes] = []  # by rank
        shared = [True] * len(ranks) if started is None else [card.shares_our_clock for card in started.cards]
        self.clocks = Clocks(shared)
        self.peaks: list[MemoryPeak] = []  # by rank
        self.predicted: Sequence[int | Absent] = ()  # by rank: the memory that steps need
        self.differing: list[str] = []  # parameters that are not the same in all replicas
        self._transport = ""
        self._library = ""
        self._step_s = 0.0  # of the longest program so far
        self._ready = set[str]()  # programs that have run; others may have to be compiled
        self._pool = ThreadPoolExecutor(len(ranks), thread_name_prefix="rank")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        # Threads that wait for a worker must end before it is stopped: only one of us may read what it sends.
        for conversation in self.ranks:
            conversation.ask_to_stop()
        self._pool.shutdown(wait=True, cancel_futures=True)

    @property
    def steps(self) -> int:
        return self.ranks[self.world.driver or 0].steps

    @property
    def fewest_samples(self) -> int:
        """Every block has a step that is not timed; where steps take seconds, it should not be every other one."""
        return _FEWEST_SAMPLES

    def hello(self) -> Hello:
        """Start all frameworks, and have the processes meet."""
        hellos = self._all(Conversation.hello)
        self.pids = [hello.pid for hello in hellos]
        world = self.world.started
        hosts = [_HERE] * world if self.started is None else self.started.addresses
        ports = self._ask_all([_opening(host, rank, world) for rank, host in enumerate(hosts)])
        addresses = [f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)]
        groups = self._ask_all([_joining(rank, world, addresses) for rank in range(world)])
        for rank, group in enumerate(groups):
            if group.world != world:
                raise MissingError(
                    f"rank {rank} finds a world of size {group.world}, asked for {world}: {self._launcher_words()} and "
                    f"the library {group.library or group.transport} are not of the same kind; use the launcher of the "
                    "environment that the library is installed in"
                )
            if group.rank != rank:
                raise MissingError(f"{group.library or group.transport} counts rank {rank} as rank {group.rank}")
            if self.job.mpi and group.library and group.library != self.job.mpi:
                raise MissingError(
                    f"rank {rank} loaded {group.library}, and the job was planned with {self.job.mpi}: the processes "
                    "find another library than this one does; make their library path the same"
                )
        self._transport, self._library = groups[0].transport, groups[0].library
        return replace_import_s(hellos[0], max(hello.import_s for hello in hellos))

    def prepare(self, job: Job | None = None) -> Prepared:
        assert job is None, "the ranks of a job prepare that job"
        self.prepared = self._all(Conversation.prepare)
        for rank, (prepared, conversation) in enumerate(zip(self.prepared, self.ranks, strict=True)):
            reason = prepared.contradiction(conversation.request)
            if reason:
                raise JobFailed("unsupported", f"rank {rank}: {reason}", stage="prepare")
        return self.prepared[self.world.driver or 0]

    def block(
        self, *, samples: int, steps_per_sample: int = 1, lead: int = 0, program: str = "", untimed: int | None = None
    ) -> BlockTimes:
        """All ranks run as many steps. One that is not timed precedes them, since processes leave a barrier one after
        the other; not where that does not matter: beside long steps, and before the first block, which is warm-up."""
        if self.clocks.are_due:
            self._read_clocks()
        if untimed is None:
            untimed = 1 if 0 < self._step_s < LONG_STEP_S else 0
        lead += untimed
        may_compile = program not in self._ready
        patience_s = None if may_compile else self._patience_s(lead + samples * steps_per_sample)
        begin_s = time.perf_counter()
        ranks = self._running(program)
        self.last_blocks = self._some(
            ranks,
            lambda rank: rank.block(
                samples=samples, steps_per_sample=steps_per_sample, lead=lead, program=program, patience_s=patience_s
            ),
        )
        waited_s = time.perf_counter() - begin_s
        block = of_the_job(self.clocks.on_ours(self.last_blocks, ranks), self.last_blocks, lead=lead)
        self._step_s = max(self._step_s, median(block.step_s))
        self._ready.add(program)
        if not self.ranks[0].has_scripted_clock and not may_compile:
            claimed_s = sum(block.step_s) * steps_per_sample
            self.round_trips.append(RoundTrip(claimed_s=claimed_s, lead_s=block.lead_s, waited_s=waited_s))
        return block

    def _running(self, program: str) -> range:
        """The ranks that run a program. A driver has those in which processes exchange something, its workers and
        servers those in which each computes on its own."""
        if self.world.driver is None:
            return range(len(self.ranks))
        if program in _ON_THEIR_OWN:
            first, last = _ON_THEIR_OWN[program]
            bounds = {"worker": 0, "server": self.world.processes, "driver": self.world.driver}
            return range(bounds[first], bounds[last])
        return range(self.world.driver, len(self.ranks))

    def open_timeline(self) -> tuple[str, ...] | Absent:
        """The programs of `timeline`. All ranks have the same ones."""
        return self._all(Conversation.open_timeline)[0]

    def timeline(self, program: str, steps: int, *, untimed: int = 1) -> list[list[TracedStep]]:
        """By rank, each by its own clock. Of the first `untimed` steps nothing is told."""
        patience_s = self._patience_s(untimed + steps) or _BLOCK_GRACE_S
        return self._all(lambda rank: rank.timeline(program, steps, untimed=untimed, patience_s=patience_s))

    def logged_times(self, steps: int) -> list[Mapping[str, list[float]] | Absent]:
        """By rank."""
        return self._all(lambda rank: rank.logged_times(steps))

    def close_timeline(self) -> None:
        self._all(Conversation.close_timeline)

    def clock_offsets_s(self) -> list[float]:
        """By rank: what must be added to its clock, as it goes now, to have that of rank 0."""
        if not self.clocks.are_shared:
            self._read_clocks()
        return self.clocks.offsets_s()

    def _patience_s(self, steps: int) -> float | None:
        """How long so many steps may take; None as long as no step was timed."""
        expected_s = self._step_s * steps
        return _BLOCK_PATIENCE * expected_s + _BLOCK_GRACE_S if expected_s else None

    def _read_clocks(self) -> None:
        self._ask_all([partial(self.clocks.read, rank) for rank in range(len(self.ranks))])

    def on_one_clock(self, blocks: Sequence[BlockTimes]) -> list[BlockTimes]:
        """Blocks of the job again, by all that is known of the clocks by now."""
        if self.clocks.are_shared:
            return list(blocks)
        self._read_clocks()
        return [
            of_the_job(self.clocks.on_ours(block.shown, self._running("")), block.shown, block.lead)
            if isinstance(block, TeamBlock)
            else block
            for block in blocks
        ]

    @property
    def mean_step_s(self) -> list[float]:
        """What each step of the last block took, the mean over ranks: of programs in which no rank waits for others."""
        return [fmean(each) for each in zip(*(block.step_s for block in self.last_blocks), strict=True)]

    def _titles(self) -> list[str]:
        """What each rank is called when it fails: with what it does where ranks differ, and its node where there are
        several."""
        started = self.started if self.world.nodes > 1 else None
        places = [""] * len(self.ranks) if started is None else [f" on {card.node}" for card in started.cards]
        return [f"{self.world.title(rank)}{place}" for rank, place in enumerate(places)]

    def _launcher_words(self) -> str:
        if self.started is None:
            return "Deepstone's own launcher"
        engine = self.started.engine
        return f"{engine.name} ({engine.kind} {engine.version})"

    def launcher(self) -> Launcher:
        if self.started is None:
            return Launcher(name="local", version=deepstone.__version__, argv=[])
        engine = self.started.engine
        version = engine.version if engine.kind == engine.name else f"{engine.kind} {engine.version}"
        return Launcher(name=engine.name, version=version, argv=self.started.argv)

    def facts(self) -> list[RankFacts]:
        """What a record says of each rank."""
        hosts = {rank: host for host in self.hosts() for rank in host.ranks}
        return [
            RankFacts(
                rank=rank,
                node=hosts[rank].node,
                host=hosts[rank].host,
                role=self.world.role(rank),
                device=prepared.value("device"),
                threads=int(prepared.value("threads")),
                cpus=prepared.value("affinity"),
                host_peak_bytes=memory["host_peak_bytes"],
                device_peak_bytes=memory.get("device_allocated_bytes", Absent("the worker does not tell it")),
                step_bytes=self.peaks[rank].step_bytes if self.peaks else Absent("not measured in this run"),
                predicted_bytes=self.predicted[rank] if self.predicted else None,
                clock=self.clocks.facts(rank),
            )
            for rank, (prepared, memory) in enumerate(zip(self.prepared, self.memories, strict=True))
        ]

    def hosts(self) -> list[HostFacts]:
        """What a record says of each node. It is known before anything is measured."""
        if self.started is not None:
            return self.started.hosts
        here, cores = socket.gethostname(), len(os.sched_getaffinity(0))
        ranks = list(range(len(self.ranks)))
        return [HostFacts(node=0, host=here, nodename=here, machine=0, cores=cores, ranks=ranks)]

    def phases(self, steps: int) -> Mapping[str, list[float]]:
        """Of computing, without communication: the mean over the ranks that have a phase. The replicas are made equal
        again."""
        found = self._all(lambda rank: rank.phases(steps))
        self.restore()
        names = list(dict.fromkeys(name for rank in found for name in rank))
        having = {name: [rank[name] for rank in found if name in rank] for name in names}
        return {name: [fmean(each) for each in zip(*times, strict=True)] for name, times in having.items()}

    def build(self, changed: Mapping[str, Value], options: BuildOptions) -> None:
        """Prepare without a first step; see Conversation.build."""
        self._all(lambda rank: rank.build(changed, options))

    def dump(self, kind: str) -> list[dict[str, Path]]:
        """Arrays of every rank."""
        return self._all(lambda rank: rank.dump(kind))

    def losses_by_rank(self, steps: int) -> list[list[float]]:
        """Empty of ranks that have none: those that a driver makes step."""
        driver = self.world.driver
        if driver is None:
            return self._all(lambda rank: rank.losses(steps))
        return [*([] for _ in range(driver)), *self._some([driver], lambda rank: rank.losses(steps))]

    def buckets(self) -> list[int]:
        """Those of rank 0 or the driver; all ranks exchange the same ones."""
        return self.ranks[self.world.driver or 0].buckets()

    @property
    def transport(self) -> str:
        """As the library itself says."""
        return self._transport

    def assignments(self) -> list[Assignment]:
        """By rank."""
        return self._all(Conversation.assignment)

    def read_step_memory(self, steps: int) -> None:
        """Find how much memory steps take on each rank, before programs that only measure take theirs. Those that a
        driver makes step are asked once it is done."""
        driver = self.world.driver
        if driver is None:
            self.peaks = self._all(lambda rank: rank.memory_peak(steps))
            return
        of_driver = self._some([driver], lambda rank: rank.memory_peak(steps))
        self.peaks = [*self._some(range(driver), lambda rank: rank.memory_peak(0)), *of_driver]

    def node_of(self, rank: int) -> int:
        return rank // self.world.per_node

    def sent_bytes(self) -> list[dict[str, int]]:
        """By network interface, once for each network: the processes of a node see the same ones."""
        if self.started is None:
            return [self.ranks[0].network()]
        first = {(card.boot_id, card.network): card.rank for card in reversed(self.started.cards)}
        return [self.ranks[rank].network() for rank in sorted(first.values())]

    def restore(self) -> None:
        """Have all ranks take the parameters of rank 0."""
        self._all(Conversation.restore)

    def losses(self, steps: int) -> list[float]:
        """That of the whole batch: all ranks have as many samples."""
        return [fmean(each) for each in zip(*filter(None, self.losses_by_rank(steps)), strict=True)]

    def sample(self, kind: str, *, most: int) -> dict[str, NDArray[np.float64]]:
        """Of the first rank that has an array. Those of the other replicas must be the same."""
        found: dict[str, NDArray[np.float64]] = {}
        for rank in self._all(lambda rank: rank.sample(kind, most=most)):
            for name, values in rank.items():
                if not np.array_equal(found.setdefault(name, values), values, equal_nan=True):
                    self.differing.append(name)
        return found

    def memory(self) -> Mapping[str, int | Absent]:
        """That of the rank that has most; of the host what was read before, if it was."""
        self.memories = self._all(Conversation.memory)
        if self.peaks:
            peaks = [peak.memory["host_peak_bytes"] for peak in self.peaks]
            self.memories = [{**m, "host_peak_bytes": peak} for m, peak in zip(self.memories, peaks, strict=True)]
        return {name: _most([memory[name] for memory in self.memories]) for name in self.memories[0]}

    def contradiction(self) -> str | None:
        found = self._all(Conversation.contradiction)
        return next((f"rank {rank}: {reason}" for rank, reason in enumerate(found) if reason), None)

    def close(self) -> object:
        return self._all(Conversation.close)

    def ask(self, ask: Callable[[Conversation], R]) -> list[R]:
        """What all ranks answer to the same question, at the same time."""
        return self._all(ask)

    @property
    def library(self) -> str:
        """What moves the data, as it names itself."""
        return self._library

    def _all(self, ask: Callable[[Conversation], R]) -> list[R]:
        return self._ask_all([ask] * len(self.ranks))

    def _ask_all(self, asks: Sequence[Callable[[Conversation], R]]) -> list[R]:
        """What all ranks answer, which they do at the same time; JobFailed or MissingError as soon as one fails."""
        return self._answers({rank: self._pool.submit(ask, self.ranks[rank]) for rank, ask in enumerate(asks)}, {})

    def _some(self, ranks: Sequence[int], ask: Callable[[Conversation], R]) -> list[R]:
        """What some ranks answer, while the others are watched."""
        if len(ranks) == len(self.ranks):
            return self._all(ask)
        released_fd = os.eventfd(0, os.EFD_CLOEXEC)
        others = [rank for rank in range(len(self.ranks)) if rank not in ranks]
        try:
            watched = {rank: self._pool.submit(self.ranks[rank].attend, released_fd) for rank in others}
            found = self._answers({rank: self._pool.submit(ask, self.ranks[rank]) for rank in ranks}, watched)
            os.eventfd_write(released_fd, 1)
            wait(watched.values())
            return found
        finally:
            os.close(released_fd)

    def _answers(self, asked: Mapping[int, Future[R]], watched: Mapping[int, Future[Any]]) -> list[R]:
        """By rank, of those that were asked."""
        waiting: set[Future[Any]] = set(asked.values())
        while waiting:
            done, _ = wait([*waiting, *watched.values()], return_when=FIRST_COMPLETED)
            if any(future.exception() is not None for future in done):
                futures = {**asked, **watched}
                raise self._explained([futures[rank] for rank in sorted(futures)])
            waiting = {future for future in waiting if not future.done()}
        return [future.result() for future in asked.values()]

    def _explained(self, futures: Sequence[Future[Any]]) -> Exception:
        first_s = time.monotonic()
        failures = self._failures(futures, first_s)
        is_known = any(each.began for each in failures)
        wait(futures, timeout=_KNOWN_PATIENCE_S if is_known else PEERS_PATIENCE_S)
        held = self._held(futures)
        failures += held
        for conversation in self.ranks:
            conversation.ask_to_stop()
        known = {each.rank for each in held}
        silent = [rank for rank, future in enumerate(futures) if not future.done() and rank not in known]
        late = self._failures(futures, time.monotonic())
        wait(futures)
        failures += [each for each in late if each.rank not in {known.rank for known in failures}]
        unexpected = next((e for f in futures if (e := f.exception()) and not isinstance(e, JobFailed)), None)
        if unexpected is not None:
            assert isinstance(unexpected, Exception)
            return unexpected
        found = blamed(failures, silent, self._titles())
        signal = "" if self.started is None else self.started.launcher_killed()
        if self.started is None or not signal:
            return found
        reason = f"{self.started.engine.name} was ended by {signal}, and its ranks with it"
        return JobFailed("crashed", reason, stage=found.stage, stderr_tail=found.details.stderr_tail, signal=signal)

    def _held(self, futures: Sequence[Future[Any]]) -> list[RankFailure]:
        """Ranks that say nothing because something holds their process; a library may give them up before we do."""
        held = [rank for rank, future in enumerate(futures) if not future.done() and self.ranks[rank].is_frozen]
        return [RankFailure(rank=rank, failure=self.ranks[rank].frozen(), at_s=time.monotonic()) for rank in held]

    def _failures(self, futures: Sequence[Future[Any]], at_s: float) -> list[RankFailure]:
        found: list[RankFailure] = []
        for rank, future in enumerate(futures):
            error = future.exception() if future.done() else None
            if isinstance(error, JobFailed):
                found.append(RankFailure(rank=rank, failure=error, at_s=at_s))
        return found


class TeamBlock(BlockTimes, frozen=True, kw_only=True):
    """A block of the job. `ranks`: that of each rank that ran it, on our clock; `shown`: as its own clock showed it.
    `lead`: how many steps that are not timed preceded it."""

    ranks: list[BlockTimes]
    shown: list[BlockTimes]
    lead: int = 0

    @property
    def lead_s(self) -> float:
        """About how long these took."""
        return fmean(self.step_s) * self.lead

    @property
    def spent_s(self) -> float:
        return self.lead_s + self.total_s


def of_the_job(ranks: Sequence[BlockTimes], shown: Sequence[BlockTimes] = (), lead: int = 0) -> TeamBlock:
    """A step of the job ends when the last rank has ended it; all `ranks` are on one clock."""
    latest, per_sample = latest_ends(ranks), ranks[0].steps_per_sample
    return TeamBlock(
        start_s=latest[0],
        steps_per_sample=per_sample,
        step_s=steps_between(latest, per_sample),
        enqueue_s=max(block.enqueue_s for block in ranks),
        total_s=latest[-1] - latest[0],
        ranks=list(ranks),
        shown=list(shown or ranks),
        lead=lead,
    )


def replace_import_s(hello: Hello, import_s: float) -> Hello:
    return replace(hello, import_s=import_s)


def _opening(host: str, rank: int, world: int) -> Callable[[Conversation], int]:
    return lambda conversation: conversation.rendezvous(host, rank=rank, world=world)


def _joining(rank: int, world: int, addresses: Sequence[str]) -> Callable[[Conversation], Joined]:
    return lambda conversation: conversation.join(rank=rank, world=world, addresses=addresses)


def _most(values: Sequence[int | Absent]) -> int | Absent:
    known = [value for value in values if not isinstance(value, Absent)]
    return max(known) if len(known) == len(values) else values[0]


def rank_jobs(job: Job) -> list[Job]:
    """What each rank is to run: the job, with its share of the cores, and a GPU of its own if it is on one."""
    world = World.of(job.request)
    given = dict(job.request)
    if given["threads"] == AUTO:  # servers work while those that compute wait, so they take no share
        given["threads"] = max(1, job.machine.usable_cores * world.nodes // world.processes)
    given |= {"processes": world.processes, "launcher": launcher_of(job)}
    places = [rank % world.per_node for rank in range(world.started)]
    of_ranks = [
        {"device": _device(given["device"], place), "affinity": _affinity(given, place, world.per_node)}
        for place in places
    ]
    return [replace(job, request={**given, **own}) for own in of_ranks]


def _affinity(request: Mapping[str, Value], place: int, per_node: int) -> Value:
    """The CPUs of a rank. Nodes are alike, so those of this machine stand for all."""
    asked = str(request["affinity"])
    if asked not in PLACEMENTS:
        return request["affinity"]
    usable = sorted(os.sched_getaffinity(0))
    return format_cpus(placed_on(asked, usable, int(request["threads"]), local_rank=place, per_node=per_node))


def _device(asked: str | int, local_rank: int) -> str:
    return f"gpu:{local_rank}" if str(asked).startswith("gpu") else str(asked)


@contextmanager
def talking_to_team(job: Job, *, timeout_s: float) -> Generator[Team, None, None]:
    """Started by us, or by a launcher."""
    check_interface(job)
    with ExitStack() as stack:
        if launcher_of(job) == "local":
            ranks = [stack.enter_context(talking_to_worker(each, timeout_s=timeout_s)) for each in rank_jobs(job)]
            yield stack.enter_context(Team(ranks, job))
        else:
            started = stack.enter_context(mustered(job, rank_jobs(job), timeout_s=timeout_s))
            yield stack.enter_context(Team(started.ranks, job, started))


@contextmanager
def talking_to(job: Job, *, timeout_s: float, spares: Spares | None = None) -> Generator[Talk, None, None]:
    """One worker, or as many as the job has processes. `spares`: workers that have imported their framework."""
    if World.of(job.request).is_parallel:
        with talking_to_team(job, timeout_s=timeout_s) as team:
            yield team
    else:
        with talking_to_worker(job, timeout_s=timeout_s, spares=spares) as conversation:
            yield conversation
