"""Parameter servers: workers compute gradients of their parts of the batch, servers keep parameters and update them.

    scheme=server         worker 0   computes ─────▶ gradients ┐               ┌▶ parameters
                          worker 1   computes ───▶ gradients ──┤               ├▶ parameters
                          server                    waits ···· sum, mean, update
    scheme=server-async   the server updates with each worker's gradient as it comes, and answers that worker alone

Every server has some of the parameters, about equally many numbers. Each worker sends a server one buffer and gets one
back. With scheme=server-async a gradient counts as one of n, so that a step of the job goes about as far as otherwise;
a worker may compute with parameters that others have changed since, so it is not the training of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from deepstone.backends.base import Job, as_observed, as_set
from deepstone.backends.torch.arrays import named_tensors, network_arrays, to_numpy
from deepstone.backends.torch.communicator import Communicator
from deepstone.backends.torch.member import LocalComputing, Member, UpdateAlone
from deepstone.backends.torch.network import lowered
from deepstone.backends.torch.settings import Settings
from deepstone.backends.torch.training import batch_of, optimizer_of
from deepstone.graph.graph import Graph
from deepstone.setups.axes import AUTO
from deepstone.setups.schemes import SERVER_ASYNC, scheme_of
from deepstone.setups.world import World


class _WithServers(Member):
    """What workers and servers share: the parameters of each server, in an order that all know."""

    def __init__(self, job: Job, graph: Graph, settings: Settings, communicator: Communicator) -> None:
        super().__init__(communicator, job.request, settings)
        self._graph, self._settings = graph, settings
        self._world = World.of(job.request)
        self._workers = range(self._world.processes)
        self._servers = range(self._world.processes, self._world.started)
        self._is_async = scheme_of(job.request).name == SERVER_ASYNC
        self.network = lowered(graph, job.weights, settings)
        self._shares = _shared_out(list(self.network.parameters()), len(self._servers))
        self.last_loss = torch.zeros((), device=settings.device)

    def loss(self) -> float:
        """The mean over workers."""
        assert self.last_loss is not None
        total = self.last_loss.detach().clone().to(torch.float64).reshape(1)
        self.communicator.sum(total)
        return float(total.item()) / len(self._workers)

    def buckets(self) -> list[int]:
        return [_bytes(share) for share in self._shares]

    def effective(self) -> dict[str, dict[str, Any]]:
        found = self._effective(scheme_of(self._request).name, servers=len(self._servers))
        found["processes"] = as_observed(self.communicator.world - len(self._servers))
        return found

    def _update_alone(self, shares: Sequence[Sequence[nn.Parameter]]) -> Callable[[], Any]:
        """An update of the largest of some shares, and not of the real parameters."""
        largest = max(shares, key=_bytes)
        like = next(self.network.parameters())
        return UpdateAlone([each.numel() for each in largest], like, self._settings, None).run


class ServedWorker(_WithServers):
    def __init__(self, job: Job, graph: Graph, settings: Settings, communicator: Communicator) -> None:
        super().__init__(job, graph, settings, communicator)
        batch, _ = batch_of(job, self.network, settings)
        self._computing = LocalComputing(self.network, batch, settings)
        self._received = [_buffer(share) for share in self._shares]
        self._alone: Callable[[], Any] | None = None

    def step(self, program: str) -> Callable[[], None]:
        if program == "train":
            return self._train
        if program == "exchange":
            return lambda: self._exchange([torch.zeros_like(each) for each in self._received])
        if self._alone is None:
            self._alone = self._update_alone(self._shares)
        return {"local": self._local, "meet": self._compute_and_meet}[program]

    def _train(self) -> None:
        self._compute()
        self._exchange([_packed([_gradient(each) for each in share]) for share in self._shares])
        for share, received in zip(self._shares, self._received, strict=True):
            _unpack(received, share)

    def _compute(self, after_phase: Callable[[int], None] = lambda _: None) -> None:
        self.network.zero_grad()
        self.last_loss = self._computing.run(after_phase=after_phase)

    def _exchange(self, gradients: Sequence[Tensor]) -> None:
        works = [dist.isend(buffer, server) for buffer, server in zip(gradients, self._servers, strict=True)]
        works += [dist.irecv(buffer, server) for buffer, server in zip(self._received, self._servers, strict=True)]
        for work in works:
            assert work is not None
            work.wait()

    def _local(self) -> None:
        """Servers update while workers can only wait, so a step without communication has the update at its end."""
        assert self._alone is not None
        self._compute()
        if not self._is_async:
            self._alone()

    def _compute_and_meet(self) -> None:
        self._compute()
        self.meet()
        if not self._is_async:
            self.meet()

    def phases(self) -> Sequence[str]:
        return ("data", "forward", "backward")

    def step_in_phases(self, set_timestamp: Callable[[int], None]) -> None:
        self._compute(set_timestamp)

    def arrays(self, kind: str) -> dict[str, Any]:
        """Gradients are whole at servers only; and if these do not wait, parameters too."""
        if kind == "gradients" or (kind == "parameters" and self._is_async):
            return {}
        return network_arrays(self.network, self._graph, kind)

    def sends(self) -> list[tuple[int, float]]:
        return [(server, float(size)) for server, size in zip(self._servers, self.buckets(), strict=True)]


class Server(_WithServers):
    def __init__(self, job: Job, graph: Graph, settings: Settings, communicator: Communicator) -> None:
        super().__init__(job, graph, settings, communicator)
        job.samples = job.labels = None
        self._number = communicator.rank - self._servers[0]
        self._own = self._shares[self._number]
        self._optimizer = optimizer_of(self._own, settings)
        count = 1 if self._is_async else len(self._workers)
        self._received = [_buffer(self._own) for _ in range(count)]
        own = set(map(id, self._own))
        named = named_tensors(self.network, graph, buffers=False)
        self._names = {name: tensor for name, tensor in named if id(tensor) in own}
        self.network = nn.ParameterList(self._own)  # what others have takes no memory here
        self._alone: Callable[[], Any] | None = None

    def step(self, program: str) -> Callable[[], None]:
        if program == "exchange":
            return self._exchange
        if program == "train":
            return self._serve_each if self._is_async else self._serve_all
        if self._alone is None:
            self._alone = self._update_alone([self._own])
        return {"local": self._update_only, "meet": self._update_and_meet}[program]

    def _serve_all(self) -> None:
        total = self._summed()
        total /= len(self._workers)
        self._update(total)
        self._answer(self._workers)

    def _serve_each(self) -> None:
        """As many gradients as there are workers, in the order in which they come."""
        buffer = self._received[0]
        for _ in self._workers:
            worker = dist.recv(buffer)
            buffer /= len(self._workers)
            self._update(buffer)
            self._answer([worker])

    def _summed(self) -> Tensor:
        works = [dist.irecv(buffer, worker) for buffer, worker in zip(self._received, self._workers, strict=True)]
        for work in works:
            assert work is not None
            work.wait()
        total = self._received[0]
        for buffer in self._received[1:]:
            total += buffer
        return total

    def _update(self, gradient: Tensor) -> None:
        sizes = [parameter.numel() for parameter in self._own]
        for parameter, part in zip(self._own, gradient.split(sizes), strict=True):
            parameter.grad = part.view_as(parameter)
        self._optimizer.step()

    def _answer(self, workers: Sequence[int]) -> None:
        packed = _packed(self._own)
        for work in [dist.isend(packed, worker) for worker in workers]:
            assert work is not None
            work.wait()

    def _exchange(self) -> None:
        if self._is_async:
            for _ in self._workers:
                self._answer([dist.recv(self._received[0])])
        else:
            self._summed()
            self._answer(self._workers)

    def _update_only(self) -> None:
        assert self._alone is not None
        for _ in self._workers if self._is_async else range(1):
            self._alone()

    def _update_and_meet(self) -> None:
        if not self._is_async:
            self.meet()
        self._update_only()
        self.meet()

    def phases(self) -> Sequence[str]:
        return ("update",)

    def step_in_phases(self, set_timestamp: Callable[[int], None]) -> None:
        if self._alone is None:
            self._alone = self._update_alone([self._own])
        self._update_only()
        set_timestamp(0)

    def arrays(self, kind: str) -> dict[str, Any]:
        if kind == "parameters":
            return {name: to_numpy(tensor) for name, tensor in self._names.items()}
        gradients = {name: tensor.grad for name, tensor in self._names.items()} if kind == "gradients" else {}
        return {name: to_numpy(gradient) for name, gradient in gradients.items() if gradient is not None}

    def sends(self) -> list[tuple[int, float]]:
        return [(worker, float(_bytes(self._own))) for worker in self._workers]

    def effective(self) -> dict[str, dict[str, Any]]:
        """A server computes nothing of the network, so what is asked for its layers is only known as it was set."""
        asked = {name: as_set(value) for name, value in self._request.items() if value != AUTO}
        own = ("threads", "inter_threads", "device", "affinity", "batch", "framework")
        return {name: value for name, value in asked.items() if name not in own} | super().effective()


def _shared_out(parameters: Sequence[nn.Parameter], count: int) -> list[list[nn.Parameter]]:
    """Whole parameters, the largest ones first, each to the server that has least; in their own order there."""
    shares: list[list[int]] = [[] for _ in range(count)]
    sizes = [parameter.numel() for parameter in parameters]
    for at in sorted(range(len(sizes)), key=lambda at: -sizes[at]):
        min(shares, key=lambda share: sum(sizes[each] for each in share)).append(at)
    return [[parameters[at] for at in sorted(share)] for share in shares]


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _buffer(tensors: Sequence[Tensor]) -> Tensor:
    return torch.zeros(sum(tensor.numel() for tensor in tensors)).to(tensors[0])


def _packed(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _unpack(buffer: Tensor, tensors: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for tensor, part in zip(tensors, buffer.split([each.numel() for each in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))


def _gradient(parameter: nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
