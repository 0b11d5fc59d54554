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
        self._scratch = torch.empty(0, device=device)  # of the largest size so far: new memory costs more than a check

    def prepare(self, operation: str, size: int) -> dict[str, Any]:
        """Run it once on numbers whose result is known."""
        buffers = self._buffers_of(size)
        program = self._communicator.transfers(buffers)[operation]
        name = program_name(operation, size)
        self.programs[name] = program
        numbers = self._scratch_of(buffers.whole.numel())
        filled = _Filled(buffers, numbers, rank=self._communicator.rank, world=self._communicator.world)
        result, expected = getattr(filled, operation)()
        program()
        return {"program": name, "wrong": _difference(result, expected)}

    def _scratch_of(self, count: int) -> Tensor:
        if self._scratch.numel() < count:
            self._scratch = torch.empty(count, dtype=torch.float32, device=self._device)
        return self._scratch[:count]

    def _buffers_of(self, size: int) -> Buffers:
        if size not in self._buffers:
            count, world = size // VALUE_BYTES, self._communicator.world

            def make(count: int) -> Tensor:
                return torch.zeros(count, dtype=torch.float32, device=self._device)

            self._buffers[size] = Buffers(whole=make(count), part=make(count // world), back=make(count))
        return self._buffers[size]


class _Filled:
    """Fills the buffers for one operation. Each method returns the buffer of the result, and what it must hold.

    `numbers`: memory for what all processes send; each adds its rank where they are summed.
    """

    def __init__(self, buffers: Buffers, numbers: Tensor, *, rank: int, world: int) -> None:
        self._buffers = buffers
        self._rank, self._world = rank, world
        self._numbers = numbers
        period = torch.arange(_PERIOD, dtype=torch.float32, device=numbers.device)
        whole = numbers.numel() // _PERIOD * _PERIOD
        numbers[:whole].view(-1, _PERIOD).copy_(period)
        numbers[whole:].copy_(period[: numbers.numel() - whole])

    def allreduce(self) -> tuple[Tensor, Tensor]:
        torch.add(self._numbers, self._rank, out=self._buffers.whole)
        return self._buffers.whole, self._sum()

    def reducescatter(self) -> tuple[Tensor, Tensor]:
        torch.add(self._numbers, self._rank, out=self._buffers.whole)
        self._buffers.part.fill_(_NOT_SENT)
        return self._buffers.part, self._own(self._sum())

    def allgather(self) -> tuple[Tensor, Tensor]:
        self._buffers.whole.fill_(_NOT_SENT)
        self._buffers.part.copy_(self._own(self._numbers))
        return self._buffers.whole, self._numbers

    def broadcast(self) -> tuple[Tensor, Tensor]:
        self._only_rank_0_has_them()
        return self._buffers.whole, self._numbers

    def p2p(self) -> tuple[Tensor, Tensor]:
        """There and back again; processes between the first and the last keep what they have."""
        self._only_rank_0_has_them()
        self._buffers.back.fill_(_NOT_SENT)
        if self._rank == 0:
            return self._buffers.back, self._numbers
        if self._rank < self._world - 1:
            self._numbers.fill_(_NOT_SENT)
        return self._buffers.whole, self._numbers

    def _only_rank_0_has_them(self) -> None:
        if self._rank == 0:
            self._buffers.whole.copy_(self._numbers)
        else:
            self._buffers.whole.fill_(_NOT_SENT)

    def _sum(self) -> Tensor:
        return self._numbers.mul_(self._world).add_(self._world * (self._world - 1) / 2)

    def _own(self, whole: Tensor) -> Tensor:
        return whole.chunk(self._world)[self._rank]


def _difference(result: Tensor, expected: Tensor) -> str:
    """Where the result is wrong, or nothing. They must be equal: these sums are exact."""
    if torch.equal(result, expected):
        return ""
    wrong = (result != expected).nonzero()
    at = int(wrong[0])
    return f"{len(wrong):,} of {result.numel():,} numbers; number {at} is {result[at]:g} and must be {expected[at]:g}"
