"""What the processes of a group do together: by torch.distributed (gloo or NCCL), or by MPI and mpi4py."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import TCPStore  # torch.distributed hands it on without saying so

from deepstone.backends.base import Group, Missing, Unsupported
from deepstone.backends.missing import NO_NCCL, no_mpi
from deepstone.setups.axes import AUTO

# A peer that is lost shows within this time at the latest. The controller ends a block that takes too long before.
_PATIENCE = timedelta(minutes=30)


@dataclass(frozen=True, kw_only=True, slots=True)
class Buffers:
    """What transfers of one size work on. `part`: one share of `whole` for each process. `back`: what comes back to
    rank 0 point to point."""

    whole: Tensor
    part: Tensor
    back: Tensor


class Communicator(Protocol):
    """Tensors are changed in place. A sum is over all ranks."""

    transport: str
    library: str  # as it names itself
    rank: int
    world: int

    def sum(self, tensor: Tensor) -> None: ...

    def sum_by_root(self, tensor: Tensor) -> None:
        """Rank 0 computes the sum and sends it to all."""
        ...

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks, by rank."""
        ...

    def send_from_root(self, tensor: Tensor) -> None: ...

    def transfers(self, buffers: Buffers) -> dict[str, Callable[[], object]]:
        """One call for each operation of setups/transfers.py. They are timed, so no code of ours runs in them."""
        ...

    def barrier(self) -> None: ...

    def close(self) -> None: ...


class TorchCommunicator:
    """The default process group, which DistributedDataParallel uses too."""

    def __init__(self, group: Group, store: Any) -> None:
        self.transport = group.transport if group.transport != AUTO else _default_transport(group.device)
        if group.interface != AUTO:
            os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = group.interface
        if self.transport == "nccl" and not dist.is_nccl_available():
            raise Missing(NO_NCCL)
        dist.init_process_group(self.transport, store=store, rank=group.rank, world_size=group.world, timeout=_PATIENCE)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.library = f"{self.transport} of torch {torch.__version__}"

    def sum(self, tensor: Tensor) -> None:
        dist.all_reduce(tensor)

    def sum_by_root(self, tensor: Tensor) -> None:
        dist.reduce(tensor, dst=0)
        dist.broadcast(tensor, src=0)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        found = [torch.empty_like(tensor) for _ in range(self.world)]
        dist.all_gather(found, tensor)
        return found

    def send_from_root(self, tensor: Tensor) -> None:
        dist.broadcast(tensor, src=0)

    def transfers(self, buffers: Buffers) -> dict[str, Callable[[], object]]:
        whole, part, back, last = buffers.whole, buffers.part, buffers.back, self.world - 1
        roles = {
            0: partial(_first_then, partial(dist.send, whole, last), partial(dist.recv, back, last)),
            last: partial(_first_then, partial(dist.recv, whole, 0), partial(dist.send, whole, 0)),
        }
        return {
            "allreduce": partial(dist.all_reduce, whole),
            "p2p": roles.get(self.rank, _nothing),
            "broadcast": partial(dist.broadcast, whole, 0),
            "reducescatter": partial(REDUCE_SCATTER, part, whole),
            "allgather": partial(ALL_GATHER, whole, part),
        }

    def barrier(self) -> None:
        dist.barrier()

    def close(self) -> None:
        dist.destroy_process_group()


class MpiCommunicator:
    """Blocking calls on the memory of CPU tensors, without a copy."""

    transport = "mpi"

    def __init__(self) -> None:
        try:
            from mpi4py import MPI  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
        except (ImportError, RuntimeError) as error:
            raise Missing(no_mpi(_first_line(error))) from error
        self._mpi: Any = MPI  # pyright: ignore[reportUnknownMemberType]
        self._world: Any = self._mpi.COMM_WORLD
        self.rank, self.world = int(self._world.Get_rank()), int(self._world.Get_size())
        told = _first_line(self._mpi.Get_library_version()).split(",")[0].strip("\0 ")
        self.library = " ".join(told.split())

    def sum(self, tensor: Tensor) -> None:
        if tensor.dtype in _NOT_OF_MPI:  # it has no such numbers, so each rank adds them up
            tensor.copy_(torch.stack(self.gather(tensor)).float().sum(0))
        else:
            self._world.Allreduce(self._mpi.IN_PLACE, tensor.numpy())

    def sum_by_root(self, tensor: Tensor) -> None:
        array = tensor.numpy()
        if self.rank == 0:
            self._world.Reduce(self._mpi.IN_PLACE, array, root=0)
        else:
            self._world.Reduce(array, None, root=0)
        self._world.Bcast(array, root=0)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        found = torch.empty((self.world, *tensor.shape), dtype=tensor.dtype)
        self._world.Allgather(_bytes(tensor.contiguous()), _bytes(found))
        return list(found)

    def send_from_root(self, tensor: Tensor) -> None:
        whole = tensor.contiguous()
        self._world.Bcast(_bytes(whole), root=0)
        if whole is not tensor:
            tensor.copy_(whole)

    def transfers(self, buffers: Buffers) -> dict[str, Callable[[], object]]:
        whole, part, back = (each.numpy() for each in (buffers.whole, buffers.part, buffers.back))
        world, last = self._world, self.world - 1
        roles = {
            0: partial(_first_then, partial(world.Send, whole, last), partial(world.Recv, back, last)),
            last: partial(_first_then, partial(world.Recv, whole, 0), partial(world.Send, whole, 0)),
        }
        return {
            "allreduce": partial(world.Allreduce, self._mpi.IN_PLACE, whole),
            "p2p": roles.get(self.rank, _nothing),
            "broadcast": partial(world.Bcast, whole, 0),
            "reducescatter": partial(world.Reduce_scatter_block, whole, part),
            "allgather": partial(world.Allgather, part, whole),
        }

    def barrier(self) -> None:
        self._world.Barrier()

    def close(self) -> None:
        """MPI ends with the process."""


def _named(*names: str) -> Callable[..., object]:
    """A function of torch.distributed under the first of these names that this torch has."""
    return next(getattr(dist, name) for name in names if hasattr(dist, name))


REDUCE_SCATTER = _named("reduce_scatter_single", "reduce_scatter_tensor")
ALL_GATHER = _named("all_gather_single", "all_gather_into_tensor")


def _first_then(first: Callable[[], object], then: Callable[[], object]) -> None:
    first()
    then()


def _nothing() -> None:
    """The part of a process that only others send past."""


_NOT_OF_MPI = (torch.float16, torch.bfloat16)


def _bytes(tensor: Tensor) -> Any:
    """The memory of a tensor, whatever its numbers are."""
    return tensor.reshape(-1).view(torch.uint8).numpy()


def _first_line(text: object) -> str:
    return str(text).partition("\n")[0]


def open_store(address: str) -> Any:
    """Where rank 0 waits; the system chooses the port, so that none can be taken already."""
    return TCPStore(address, 0, is_master=True, wait_for_workers=False, timeout=_PATIENCE)


def communicator(group: Group, store: Any | None) -> Communicator:
    """`store` is that of rank 0, which opened it; the others look for it."""
    if group.transport == "mpi":
        return MpiCommunicator()
    if not dist.is_available():
        raise Unsupported("this torch is built without torch.distributed")
    if store is None:
        store = TCPStore(group.address, group.port, is_master=False, timeout=timedelta(seconds=60))
    if group.request["library"] == "horovod":
        from deepstone.backends.torch.horovod import HorovodCommunicator

        return HorovodCommunicator(group, store)
    return TorchCommunicator(group, store)


def _default_transport(device: str) -> str:
    on_gpu = device != "cpu" and torch.cuda.is_available()
    return "nccl" if on_gpu and dist.is_nccl_available() else "gloo"
