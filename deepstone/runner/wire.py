"""Bytes on the wire: what network interfaces count while steps run, against what the exchange of gradients needs.

A transport may go around the network: through shared memory, though the nodes were meant to be apart. Its times then
say nothing about the network, and only the interfaces tell.

    windows     train │ local │ train │ local …      local: the same step without communication
    others        ▁▁▁   ▁▁▁     ▁█▁     ▁▁▁          what other programs send

Interfaces count the bytes of all programs. What they count while nothing is exchanged is subtracted, and of several
windows the one with the fewest bytes is taken, since others can only add to them. Others use loopback most: if they
were seen there, and what is left is implausibly much or little, what this job sent is not known.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from deepstone import units
from deepstone.absent import Absent
from deepstone.results.parallel import Wire
from deepstone.runner.team import Team
from deepstone.runner.turns import LONG_STEP_S

LEAST_PLAUSIBLE_RATIO: Final = 0.95  # on loopback, where others use it
MOST_PLAUSIBLE_RATIO: Final = 1.1  # frames and acknowledgements add 0.1 to 1 %
_OTHERS_SHARE: Final = 0.05  # of the bytes of a step: what others send is seen from there on
_MOST_STEPS: Final = 5
_LONG_S: Final = 1.0
_WINDOWS: Final = 3
_WINDOWS_OF_LONG: Final = 2
_LOOPBACK: Final = "lo"


class Window(Struct, frozen=True, kw_only=True):
    """The bytes that all nodes sent in so many seconds, while so many steps ran; none while only others sent."""

    sent_bytes: float
    took_s: float
    steps: int = 0

    @property
    def per_step(self) -> float:
        return self.sent_bytes / self.steps


def sent_per_step(own: Sequence[Window], idle: Sequence[Window]) -> float:
    """`idle`: windows in which the job sends nothing."""
    fewest = min(own, key=lambda window: window.per_step)
    by_others = min(window.sent_bytes / window.took_s for window in idle) * fewest.took_s
    return max(0.0, fewest.sent_bytes - by_others) / fewest.steps


def hidden_by_others(own: Sequence[Window], idle: Sequence[Window], needed: float) -> str:
    """Why loopback does not tell what a job sent, or nothing."""
    ratio = sent_per_step(own, idle) / needed
    if LEAST_PLAUSIBLE_RATIO <= ratio <= MOST_PLAUSIBLE_RATIO:
        return ""
    each = [window.per_step for window in own]
    step_s = min(window.took_s / window.steps for window in own)
    most_by_others = max(window.sent_bytes / window.took_s for window in idle) * step_s
    if max(each) - min(each) <= _OTHERS_SHARE * min(each) and most_by_others <= _OTHERS_SHARE * needed:
        return ""
    return (
        f"loopback carried {units.digits(ratio)} times what is needed, and other programs use it: what this "
        "job sent is not known; measure it while nothing else uses loopback"
    )


class WireCount:
    """Counts around the blocks of a job that exchange gradients and those that do not."""

    def __init__(self, team: Team) -> None:
        self._team = team
        self._needed = _needed_bytes(team)
        self._why_not = _why_not(team) or ("" if self._needed else "the framework does not tell its buckets")
        self._windows: dict[str, list[Window]] = {"train": [], "local": []}

    @contextmanager
    def around(self, program: str) -> Generator[None]:
        """Count while a block of this program runs."""
        if self._why_not or program not in self._windows:
            yield
            return
        with _window(self._team) as counted:
            yield
        self._windows[program] += counted

    def result(self) -> Wire | Absent:
        own, idle = self._windows["train"], self._windows["local"]
        reason = self._why_not or (hidden_by_others(own, idle, self._needed) if self._team.world.nodes == 1 else "")
        if reason:
            return Absent(reason)
        sent = sent_per_step(own, idle)
        return Wire(sent_bytes=sent, needed_bytes=self._needed, ratio=sent / self._needed, windows=len(own))


def measure_wire(team: Team, step_s: float) -> Wire | Absent:
    """In blocks for nothing else, of one step each where steps are long. The replicas are made equal again after it."""
    counting, is_long = WireCount(team), step_s >= LONG_STEP_S
    steps = max(1, min(_MOST_STEPS, int(_LONG_S / max(step_s, 1e-9))))
    for _ in range(_WINDOWS_OF_LONG if is_long else _WINDOWS):
        for program in ("train", "local"):
            with counting.around(program):
                team.block(samples=steps, program=program, untimed=0 if is_long else 1)
    team.restore()
    return counting.result()


def _needed_bytes(team: Team) -> float:
    """What the processes say that they must send, where they do different things; between nodes, to other nodes."""
    sends = [(rank, *each) for rank, assignment in enumerate(team.assignments()) for each in assignment.sends]
    if not sends:
        return needed_bytes(team.buckets(), processes=team.world.processes, nodes=team.world.nodes)
    over_network = team.world.nodes > 1
    return sum(size for rank, to, size in sends if not over_network or team.node_of(rank) != team.node_of(to))


def needed_bytes(buckets: Iterable[int], *, processes: int, nodes: int) -> float:
    """What an all-reduce sends in a step: every process 2 (n - 1) / n of the gradients, and between nodes every node as
    much, since the processes of a node are neighbours."""
    senders = processes if nodes == 1 else nodes
    return senders * 2 * (processes - 1) / processes * sum(buckets)


def _why_not(team: Team) -> str:
    request, transport = team.job.request, team.transport
    if request["compression"] != "none" or request["collective"] == "reduce-broadcast":
        return "what is needed is known for plain gradients that all processes sum"
    return why_not_counted(transport, team.world.nodes)


def why_not_counted(transport: str, nodes: int) -> str:
    """Why network interfaces do not see what this transport sends, or nothing."""
    if transport == "nccl":
        return "NCCL may use NVLink or RDMA, which network interfaces do not count"
    if transport == "mpi" and nodes == 1:
        return "MPI moves data between processes of one machine in shared memory"
    return ""


def sent_in(team: Team, program: str, count: int) -> Window:
    """While a block runs."""
    with _window(team) as counted:
        team.block(samples=count, program=program)
    return counted[0]


@contextmanager
def _window(team: Team) -> Generator[list[Window]]:
    """Filled at its end."""
    counted: list[Window] = []
    before, begin_s, steps = team.sent_bytes(), time.perf_counter(), team.steps
    yield counted
    took_s = time.perf_counter() - begin_s
    counted.append(Window(sent_bytes=_sent_since(team, before), took_s=took_s, steps=team.steps - steps))


def sent_while_idle(team: Team, seconds: float) -> Window:
    """While nothing of ours runs."""
    before = team.sent_bytes()
    time.sleep(seconds)
    return Window(sent_bytes=_sent_since(team, before), took_s=seconds)


def _sent_since(team: Team, before: Sequence[Mapping[str, int]]) -> float:
    """Over the network if there are several nodes, else over loopback."""
    over_network = team.world.nodes > 1
    sent = 0.0
    for earlier, later in zip(before, team.sent_bytes(), strict=True):
        for name, count in later.items():
            if (name != _LOOPBACK) == over_network:
                sent += count - earlier.get(name, 0)
    return sent
