"""What processes can send each other apart from training: operations by name, and what each of them must move.

    S is the size of the whole array: what an all-gather gives, and what a reduce-scatter takes.

    operation       bus bandwidth            bytes that n processes must send
    allreduce       S / t x 2 (n - 1) / n    2 (n - 1) S
    reducescatter   S / t x (n - 1) / n      (n - 1) S
    allgather       S / t x (n - 1) / n      (n - 1) S
    broadcast       S / t                    (n - 1) S
    p2p             S / t                    S, from the first process to the last; t is half of a round trip

Sizes and factors are those of nccl-tests, so its numbers can stand beside ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

VALUE_BYTES: Final = 4  # of a float32


@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """`title`: as people write it. `in_parts`: each process has one of as many equal parts of the array."""

    name: str
    title: str
    bus_factor: Callable[[int], float]
    in_parts: bool = False

    def whole_bytes(self, size: int, processes: int) -> int:
        """The size that is really sent: whole numbers, and as many for each process."""
        unit = VALUE_BYTES * (processes if self.in_parts else 1)
        return max(unit, size // unit * unit)

    def needed_bytes(self, size: int, *, processes: int, nodes: int) -> float:
        """What must go over the wire in one operation: over loopback on one machine; between nodes only what a node
        sends to another one, since the processes of a node are neighbours."""
        if self.name == "p2p":
            return size
        senders = processes if nodes == 1 else nodes
        if self.name == "broadcast":
            return (senders - 1) * size
        return senders * self.bus_factor(processes) * size


_DECLARED: Final = (
    Transfer(name="allreduce", title="all-reduce", bus_factor=lambda n: 2 * (n - 1) / n),
    Transfer(name="p2p", title="point to point", bus_factor=lambda n: 1.0),
    Transfer(name="broadcast", title="broadcast", bus_factor=lambda n: 1.0),
    Transfer(name="reducescatter", title="reduce-scatter", bus_factor=lambda n: (n - 1) / n, in_parts=True),
    Transfer(name="allgather", title="all-gather", bus_factor=lambda n: (n - 1) / n, in_parts=True),
)

TRANSFERS: Final[Mapping[str, Transfer]] = {each.name: each for each in _DECLARED}


def program_name(operation: str, size: int) -> str:
    """What a backend calls the program that sends so many bytes."""
    return f"{operation} {size}"
