"""Sharded data parallelism (FSDP2): every process has a part of the batch, and a shard of every parameter, of its
gradient and of the optimizer's state.

    forward     for each group of layers: gather its parameters from all processes, compute, drop them again
    backward    the same in reverse, and sum its gradients: each process keeps the sum of its own shard
    update      of the own shards

`bucket` is the least size of a group. Programs without communication run on a plain copy of the network, made when they
are first asked for; they update as many numbers as a shard has, and leave the real parameters alone.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from deepstone.backends.base import Job, as_set
from deepstone.backends.torch.arrays import load, network_arrays
from deepstone.backends.torch.communicator import ALL_GATHER, REDUCE_SCATTER, Communicator
from deepstone.backends.torch.lower import Lowering
from deepstone.backends.torch.member import CopyingMember, LocalComputing, PlainCopy
from deepstone.backends.torch.network import lowered
from deepstone.backends.torch.settings import Settings
from deepstone.backends.torch.training import batch_of, optimizer_of
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.segments import split_parameters
from deepstone.setups.axes import AUTO

_MIB: Final = 2**20


class Segments(nn.Module):
    """Groups of layers, one after the other; each passes on one array."""

    def __init__(self, graph: Graph, groups: Sequence[Sequence[Layer]], settings: Settings) -> None:
        super().__init__()
        sources = [graph.input.name, *(group[-1].name for group in groups[:-1])]
        self.segments = nn.ModuleList(
            Lowering(graph, group, **settings.lowering).module(source)
            for group, source in zip(groups, sources, strict=True)
        )

    def forward(self, samples: Tensor, labels: Tensor) -> Tensor:
        x = samples
        for segment in self.segments[:-1]:
            x = segment(x)
        return self.segments[-1](x, labels)


class Sharded(CopyingMember):
    def __init__(self, job: Job, graph: Graph, settings: Settings, communicator: Communicator) -> None:
        super().__init__(communicator, job.request, settings)
        self._job, self._graph, self._settings = job, graph, settings
        self._groups = _groups(graph, job.request["bucket"], settings.weights.itemsize)
        self.network = self._made(Segments(graph, self._groups, settings) if self._groups else None)
        self._batch, self._make_own = batch_of(job, self.network, settings)
        self._bucket_bytes = [_bytes(segment) for segment in self._units()]
        for segment in self._units():
            fully_shard(segment)
        if self._groups:
            fully_shard(self.network)
        self._computing = LocalComputing(self.network, self._batch, settings)
        self._optimizer = optimizer_of(list(self.network.parameters()), settings, self._make_own)
        self._alone: PlainCopy | None = None
        self._stand_ins: list[tuple[Tensor, Tensor]] = []

    def _made(self, network: nn.Module | None) -> nn.Module:
        """A user's own module is one group."""
        if network is None:
            return lowered(self._graph, self._job.weights, self._settings)
        load(network, self._job.weights)
        self._settings.place(network)
        return network

    def _units(self) -> list[nn.Module]:
        """What is gathered together."""
        segments = self.network.segments if isinstance(self.network, Segments) else [self.network]
        return [segment for segment in segments if any(True for _ in segment.parameters())]

    def _train(self) -> None:
        self._optimizer.zero_grad()
        self.last_loss = self._computing.run(self._before)
        self._optimizer.step()

    @contextmanager
    def _before(self, is_last: bool) -> Generator[None, None, None]:
        """Gradients are summed with the last part only."""
        if self._settings.accumulate > 1:
            cast(FSDPModule, self.network).set_requires_gradient_sync(is_last)
        yield

    def _exchange(self) -> None:
        """Gather and sum as much as a step does, with nothing computed beside it."""
        for whole, shard in self._buffers():
            for _ in range(self._gathers * self._settings.accumulate):
                ALL_GATHER(whole, shard)
            REDUCE_SCATTER(shard, whole)

    def arrays(self, kind: str) -> dict[str, Any]:
        return network_arrays(self.network, self._graph, kind, _whole)

    def buckets(self) -> list[int]:
        return self._bucket_bytes

    def sends(self) -> list[tuple[int, float]]:
        """By ring: (n - 1) / n of a group each time that it is gathered, and once when its gradients are summed."""
        world, rank = self.communicator.world, self.communicator.rank
        times = self._gathers * self._settings.accumulate + 1
        return [((rank + 1) % world, times * (world - 1) / world * sum(self._bucket_bytes))]

    @property
    def _gathers(self) -> int:
        """How often a step gathers a group: in forward, and in backward unless it is the only one, which is kept."""
        return 2 if self._groups else 1

    def effective(self) -> dict[str, dict[str, Any]]:
        found = self._effective("sharded")
        found["bucket"] = as_set(max(1, round(max(self._bucket_bytes) / _MIB)))
        if self._request["bucket"] != AUTO:
            found["bucket"] = as_set(self._request["bucket"])
        return found

    def _plain_copy(self) -> PlainCopy:
        """Without shards; it updates as many numbers as a shard has."""
        if self._alone is None:
            network, world = lowered(self._graph, self._job.weights, self._settings), self.communicator.world
            self._alone = PlainCopy(network, self._batch, self._settings, self._make_own, shards=world)
        return self._alone

    def _buffers(self) -> list[tuple[Tensor, Tensor]]:
        """A whole group and a shard of it, for each group."""
        if not self._stand_ins:
            world, like = self.communicator.world, cast(DTensor, next(self.network.parameters())).to_local()
            for size in self._bucket_bytes:
                shard = torch.zeros(-(-size // like.element_size() // world)).to(like)
                self._stand_ins.append((torch.zeros(len(shard) * world).to(like), shard))
        return self._stand_ins


def _groups(graph: Graph, bucket: str | int, value_bytes: int) -> list[list[Layer]]:
    if graph.opaque:
        return []
    least = None if bucket == AUTO else int(bucket) * _MIB // value_bytes
    return split_parameters(graph, at_least=least)


def _bytes(module: nn.Module) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in module.parameters())


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
