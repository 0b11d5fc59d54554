"""One process among those that train a network together, in another scheme than data parallelism: what the backend asks
of it. All processes of the group are asked the same at the same time, so any answer may communicate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch
from torch import Tensor, nn

from deepstone.backends.base import TracedStep, Unsupported, as_observed, as_set, phases_of
from deepstone.backends.torch.communicator import Communicator
from deepstone.backends.torch.own_step import MakesOptimizer
from deepstone.backends.torch.settings import Settings
from deepstone.backends.torch.training import Batch, OwnBatch, optimizer_of, split
from deepstone.setups.axes import AUTO
from deepstone.setups.world import BETWEEN_PROCESSES

# The real step, and steps that do less: without the exchange, but waiting for the others; without any communication;
# the exchange alone.
PROGRAMS: Final = ("train", "meet", "local", "exchange")


class Member(ABC):
    network: nn.Module  # as much of it as this process has
    last_loss: Tensor | None = None

    def __init__(self, communicator: Communicator, request: dict[str, Any], settings: Settings) -> None:
        self.communicator = communicator
        self._request = request
        self._met = torch.zeros(1, device=settings.device)

    @abstractmethod
    def step(self, program: str) -> Callable[[], None]:
        """Return the function that runs one step of a program."""

    def phases(self) -> Sequence[str]:
        return phases_of("train")

    @abstractmethod
    def step_in_phases(self, set_timestamp: Callable[[int], None]) -> None:
        """Run one step without communication, with a timestamp at the end of each phase."""

    @abstractmethod
    def arrays(self, kind: str) -> dict[str, Any]:
        """Return those that this process answers for, whole."""

    def loss(self) -> float:
        """That of the last step, of this process' part of the batch."""
        assert self.last_loss is not None
        return float(self.last_loss.item())

    def restore(self) -> None:
        """Undo what programs other than `train` have done to the parameters."""
        self.communicator.barrier()

    def buckets(self) -> list[int]:
        """The bytes of each group of gradients that are exchanged together."""
        return []

    def sends(self) -> list[tuple[int, float]]:
        """What this process must send in a step: to which rank, and how many bytes."""
        return []

    def stages(self) -> list[dict[str, Any]]:
        """Of a pipeline: see Backend.assignment."""
        return []

    @abstractmethod
    def effective(self) -> dict[str, dict[str, Any]]:
        """The axes between processes."""

    def open_timeline(self, clock: Callable[[], float]) -> Sequence[str]:
        """As Backend.open_timeline."""
        raise Unsupported("steps of this scheme do not tell when their parts begin and end")

    def timeline_step(self, program: str) -> Callable[[], TracedStep]:
        raise NotImplementedError

    def meet(self) -> None:
        """Wait for all processes."""
        self.communicator.sum(self._met)

    def _effective(self, scheme: str, **values: str | int) -> dict[str, dict[str, Any]]:
        """Axes that mean nothing in a scheme are `none`."""
        interface = "chosen by the transport" if self._request["interface"] == AUTO else self._request["interface"]
        known = {"interface": interface, "library": "torch", **values}
        found = {name: as_set(known.get(name, "none")) for name in BETWEEN_PROCESSES}
        found["processes"] = as_observed(self.communicator.world)
        found["transport"] = as_observed(self.communicator.transport)
        found["scheme"] = as_set(scheme)
        return found


class CopyingMember(Member):
    """A library exchanges what it wants when it wants: steps without the exchange run on a copy of the network."""

    def step(self, program: str) -> Callable[[], None]:
        if program == "exchange":
            return self._exchange
        if program == "train":
            return self._train
        return self._step_of_copy(self._plain_copy(), meets=program == "meet")

    def step_in_phases(self, set_timestamp: Callable[[int], None]) -> None:
        self.last_loss = self._plain_copy().step_in_phases(set_timestamp)

    @abstractmethod
    def _train(self) -> None:
        """Run the real step."""

    @abstractmethod
    def _exchange(self) -> None:
        """Run the exchange of a step alone."""

    @abstractmethod
    def _plain_copy(self) -> PlainCopy:
        """Return the copy, made at the first call."""

    def _step_of_copy(self, copy: PlainCopy, *, meets: bool) -> Callable[[], None]:
        """A step on a copy of the network: without communication, or one in which processes only wait for each
        other."""

        def step() -> None:
            self.last_loss = copy.compute()
            if meets:
                self.meet()
            copy.update()

        return step


class UpdateAlone:
    """An update of as many numbers as this process has to update, and not of the real ones: programs that exchange
    nothing must not change what is trained."""

    def __init__(self, sizes: Iterable[int], like: Tensor, settings: Settings, make_own: MakesOptimizer | None) -> None:
        stand_ins = [nn.Parameter(torch.zeros(size).to(like)) for size in sizes]
        for stand_in in stand_ins:
            stand_in.grad = torch.zeros_like(stand_in)
        self.run: Callable[[], Any] = optimizer_of(stand_ins, settings, make_own).step if stand_ins else lambda: None


class LocalComputing:
    """Forward and backward of this process' part of the batch, which may itself come in parts."""

    def __init__(
        self,
        model: nn.Module,
        batch: Batch | OwnBatch,
        settings: Settings,
        *,
        backward: Callable[[Tensor], object] = Tensor.backward,
    ) -> None:
        self._model = model
        self._backward = backward
        self._batch = batch
        self._parts = settings.accumulate
        self._casting = settings.casting()

    def run(
        self,
        before: Callable[[bool], AbstractContextManager[object]] = lambda _: nullcontext(),
        after_phase: Callable[[int], None] = lambda _: None,
    ) -> Tensor:
        """Return the loss. `before` is told of each part whether it is the last. `after_phase` is called after data,
        and with one part after forward and backward."""
        samples, labels = self._batch.get()
        after_phase(0)
        total: Tensor | None = None
        pairs = zip(split(samples, self._parts), split(labels, self._parts), strict=True)
        for number, (some, their_labels) in enumerate(pairs, start=1):
            with before(number == self._parts):
                with self._casting:
                    loss = self._model(some, their_labels)
                loss = loss if self._parts == 1 else loss / self._parts
                after_phase(1)
                self._backward(loss)
                after_phase(2)
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None
        return total


class PlainCopy:
    """A copy of the network that no library has taken over, for steps without communication. It updates as many numbers
    as one of `shards` processes does, and not its own."""

    def __init__(
        self,
        network: nn.Module,
        batch: Batch | OwnBatch,
        settings: Settings,
        make_own: MakesOptimizer | None,
        *,
        shards: int = 1,
    ) -> None:
        self._network = network
        self._computing = LocalComputing(network, batch, settings)
        sizes = [-(-parameter.numel() // shards) for parameter in network.parameters()]
        self.update = UpdateAlone(sizes, next(network.parameters()), settings, make_own).run

    def compute(self, after_phase: Callable[[int], None] = lambda _: None) -> Tensor:
        self._network.zero_grad()
        return self._computing.run(after_phase=after_phase)

    def step_in_phases(self, set_timestamp: Callable[[int], None]) -> Tensor:
        """Run one step with a timestamp at the end of data, forward, backward and update, and return the loss."""
        loss = self.compute(set_timestamp)
        self.update()
        set_timestamp(3)
        return loss
