"""How many processes a request means, on how many nodes, and which share of the batch each has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deepstone.setups.axes import AUTO, Value

# What only several processes have. A setup with one process leaves them at their defaults.
BETWEEN_PROCESSES = ("transport", "collective", "interface", "overlap", "bucket", "compression", "scheme")


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """All processes of one job. Ranks are numbered node by node."""

    processes: int
    nodes: int

    @staticmethod
    def of(request: Mapping[str, Value]) -> World:
        nodes, asked = int(request["nodes"]), request["processes"]
        if asked == AUTO:
            return World(processes=nodes, nodes=nodes)
        count, per_node, _ = str(asked).partition("/node")
        return World(processes=int(count) * nodes if per_node else int(count), nodes=nodes)

    @property
    def is_parallel(self) -> bool:
        return self.processes > 1

    @property
    def per_node(self) -> int:
        return self.processes // self.nodes


def resolve_batch(batch: Value, request: Mapping[str, Value]) -> int:
    """`8/process` as the batch of the whole job."""
    count, per_process, _ = str(batch).partition("/process")
    return int(count) * World.of(request).processes if per_process else int(count)


def placed_on(
    placement: str, usable: Sequence[int], threads: int, *, local_rank: int = 0, per_node: int = 1
) -> list[int]:
    """The CPUs of one of the processes of a node. Where processes have more threads than there are CPUs, they share."""
    if placement == "none" or threads * per_node > len(usable):
        return list(usable)
    if placement == "compact":
        return list(usable[local_rank * threads : (local_rank + 1) * threads])
    stride = len(usable) // (threads * per_node)
    return [usable[(local_rank + per_node * thread) * stride] for thread in range(threads)]
