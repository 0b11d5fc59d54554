"""Operations between processes apart from training: their buffers, and whether they give what they must."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from deepstone.backends.torch.communicator import Buffers, Communicator
from deepstone.setups.transfers import VALUE_BYTES, program_name

# Whole numbers that float32 adds exactly, in any order. No two neighbouring parts look alike, since it is a prime.
_PERIOD: Final = 4093
_NOT_SENT: Final = -1.0


class Transfers:
    """Programs by name, on buffers that those of one size share."""

    def __init__(self, communicator: Communicator, device: torch.device) -> None:
        self.programs: dict[str, Callable[[], Any]] = {}
        self._communicator = communicator
        self._device = device
        self._buffers: dict[int, Buffers] = {}

    def prepare(self, operation: str, size: int) -> dict[str, Any]:
        """Run it once on numbers whose result is known."""
        buffers = self._buffers_of(size)
        program = self._communicator.transfers(buffers)[operation]
        name = program_name(operation, size)
        self.programs[name] = program
        filled = _Filled(buffers, rank=self._communicator.rank, world=self._communicator.world)
        result, expected = getattr(filled, operation)()
        program()
        return {"program": name, "wrong": _difference(result, expected)}

    def _buffers_of(self, size: int) -> Buffers:
        if size not in self._buffers:
            count, world = size // VALUE_BYTES, self._communicator.world

            def make(count: int) -> Tensor:
                return torch.zeros(count, dtype=torch.float32, device=self._device)

            self._buffers[size] = Buffers(whole=make(count), part=make(count // world), back=make(count))
        return self._buffers[size]


class _Filled:
    """Fills the buffers for one operation. Each method returns the buffer of the result, and what it must hold."""

    def __init__(self, buffers: Buffers, *, rank: int, world: int) -> None:
        self._buffers = buffers
        self._rank, self._world = rank, world
        count = buffers.whole.numel()
        period = torch.arange(_PERIOD, dtype=torch.float32, device=buffers.whole.device)
        self._base = period.repeat(count // _PERIOD + 1)[:count]

    def allreduce(self) -> tuple[Tensor, Tensor]:
        self._buffers.whole.copy_(self._base + self._rank)
        return self._buffers.whole, self._sum()

    def reducescatter(self) -> tuple[Tensor, Tensor]:
        self._buffers.whole.copy_(self._base + self._rank)
        self._buffers.part.fill_(_NOT_SENT)
        return self._buffers.part, self._own(self._sum())

    def allgather(self) -> tuple[Tensor, Tensor]:
        self._buffers.whole.fill_(_NOT_SENT)
        self._buffers.part.copy_(self._own(self._base))
        return self._buffers.whole, self._base

    def broadcast(self) -> tuple[Tensor, Tensor]:
        self._give_to(0)
        return self._buffers.whole, self._base

    def p2p(self) -> tuple[Tensor, Tensor]:
        """There and back again; processes between the first and the last keep what they have."""
        self._give_to(0)
        self._buffers.back.fill_(_NOT_SENT)
        if self._rank == 0:
            return self._buffers.back, self._base
        is_last = self._rank == self._world - 1
        return self._buffers.whole, self._base if is_last else torch.full_like(self._base, _NOT_SENT)

    def _give_to(self, rank: int) -> None:
        if self._rank == rank:
            self._buffers.whole.copy_(self._base)
        else:
            self._buffers.whole.fill_(_NOT_SENT)

    def _sum(self) -> Tensor:
        return self._base * self._world + self._world * (self._world - 1) / 2

    def _own(self, whole: Tensor) -> Tensor:
        return whole.chunk(self._world)[self._rank]


def _difference(result: Tensor, expected: Tensor) -> str:
    """Where the result is wrong, or nothing. They must be equal: these sums are exact."""
    wrong = (result != expected).nonzero()
    if not wrong.numel():
        return ""
    at = int(wrong[0])
    return f"{len(wrong):,} of {result.numel():,} numbers; number {at} is {result[at]:g} and must be {expected[at]:g}"
