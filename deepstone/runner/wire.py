"""Bytes on the wire: what network interfaces count while steps run, against what the exchange of gradients needs.

A transport may go around the network: through shared memory, though the nodes were meant to be apart. Its times then
say nothing about the network, and only the interfaces tell. What they count while nothing is exchanged is subtracted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from deepstone.absent import Absent
from deepstone.results.parallel import Wire
from deepstone.runner.team import Team

_MOST_STEPS: Final = 5
_LONG_S: Final = 1.0
_LOOPBACK: Final = "lo"


def measure_wire(team: Team, step_s: float) -> Wire | Absent:
    """Where steps are long, of one step. The replicas are made equal again after it."""
    needed = _needed_bytes(team)
    reason = _why_not(team) or ("" if needed else "the framework does not tell its buckets")
    if reason:
        return Absent(reason)
    count = max(1, min(_MOST_STEPS, int(_LONG_S / max(step_s, 1e-9))))
    own_sent, own_s, steps = sent_in(team, "train", count)
    idle_sent, idle_s, _ = sent_in(team, "local", count)
    team.restore()
    sent = max(0.0, own_sent - idle_sent * own_s / idle_s) / steps
    return Wire(sent_bytes=sent, needed_bytes=needed, ratio=sent / needed)


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


def sent_in(team: Team, program: str, count: int) -> tuple[float, float, int]:
    """The bytes that all nodes sent while a block ran, how long that took, and its steps."""
    before, begin_s = team.sent_bytes(), time.perf_counter()
    steps = team.steps
    team.block(samples=count, program=program)
    took_s = time.perf_counter() - begin_s
    return _sent_since(team, before), took_s, team.steps - steps


def sent_while_idle(team: Team, seconds: float) -> float:
    """The bytes that all nodes sent while nothing of ours ran."""
    before = team.sent_bytes()
    time.sleep(seconds)
    return _sent_since(team, before)


def _sent_since(team: Team, before: Sequence[Mapping[str, int]]) -> float:
    """Over the network if there are several nodes, else over loopback."""
    over_network = team.world.nodes > 1
    sent = 0.0
    for earlier, later in zip(before, team.sent_bytes(), strict=True):
        for name, count in later.items():
            if (name != _LOOPBACK) == over_network:
                sent += count - earlier.get(name, 0)
    return sent
