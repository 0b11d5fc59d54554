"""Data parallelism by Horovod, in place of torch's DistributedDataParallel: library=horovod.

Horovod's optimizer hands every gradient to a thread in the background as soon as backward has it. About once in a
millisecond that thread sums those which all processes have, as many as fit together into one buffer: its fusion
threshold, which is the axis `bucket`. Which gradients meet in one buffer differs from step to step.

Programs without communication run on a plain copy of the network, made when they are first asked for: Horovod cannot
leave out a sum.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Final

import torch
from torch import Tensor

from deepstone.backends.base import Group, Job, Missing, Unsupported, as_set
from deepstone.backends.missing import no_library
from deepstone.backends.ports import go_straight
from deepstone.backends.torch.arrays import network_arrays
from deepstone.backends.torch.communicator import Buffers, Communicator
from deepstone.backends.torch.member import CopyingMember, LocalComputing, PlainCopy
from deepstone.backends.torch.network import lowered
from deepstone.backends.torch.settings import Settings
from deepstone.backends.torch.training import batch_of, optimizer_of
from deepstone.graph.graph import Graph
from deepstone.setups.axes import AUTO

_MIB: Final = 2**20
_THRESHOLD: Final = "HOROVOD_FUSION_THRESHOLD"
_OWN_THRESHOLD_MIB: Final = 128  # what Horovod takes by itself, from 0.22 on
_PORT: Final = "horovod"
_ADDRESS_OF_INTERFACE: Final = 0x8915  # SIOCGIFADDR


class HorovodCommunicator:
    """All processes of the job, by Horovod's own gloo."""

    transport = "gloo"

    def __init__(self, group: Group, store: Any) -> None:
        try:
            import horovod.torch as hvd  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise Missing(no_library("horovod", str(error).partition("\n")[0])) from error
        self.hvd: Any = hvd
        if not self.hvd.gloo_built():
            raise Missing("library=horovod: this Horovod is built without gloo; build it with HOROVOD_WITH_GLOO=1")
        go_straight()
        _meet(group, store)
        self.hvd.init()
        self.rank, self.world = int(self.hvd.rank()), int(self.hvd.size())
        self.library = f"Horovod {version('horovod')}"

    def sum(self, tensor: Tensor) -> None:
        self.hvd.allreduce_(tensor, op=self.hvd.Sum, name="sum")

    def sum_by_root(self, tensor: Tensor) -> None:
        raise Unsupported("Horovod sums at all processes")

    def gather(self, tensor: Tensor) -> list[Tensor]:
        return list(self.hvd.allgather(tensor.unsqueeze(0), name="gather"))

    def send_from_root(self, tensor: Tensor) -> None:
        self.hvd.broadcast_(tensor, root_rank=0, name="from root")

    def transfers(self, buffers: Buffers) -> dict[str, Callable[[], object]]:
        raise Unsupported("comm does not measure Horovod; leave out library")

    def barrier(self) -> None:
        self.hvd.barrier()

    def close(self) -> None:
        self.hvd.shutdown()


class Horovod(CopyingMember):
    def __init__(self, job: Job, graph: Graph, settings: Settings, communicator: Communicator) -> None:
        super().__init__(communicator, job.request, settings)
        assert isinstance(communicator, HorovodCommunicator)
        self._hvd = communicator.hvd
        self._job, self._graph, self._settings = job, graph, settings
        self.network = lowered(graph, job.weights, settings)
        self._batch, self._make_own = batch_of(job, self.network, settings)
        self._optimizer: Any = self._hvd.DistributedOptimizer(
            optimizer_of(list(self.network.parameters()), settings, self._make_own),
            named_parameters=self.network.named_parameters(),
            backward_passes_per_step=settings.accumulate,
        )
        self._computing = LocalComputing(self.network, self._batch, settings)
        self._alone: PlainCopy | None = None
        self._zeros: list[Tensor] = []

    def _train(self) -> None:
        self._optimizer.zero_grad()
        self.last_loss = self._computing.run()
        self._optimizer.step()

    def _exchange(self) -> None:
        """Arrays of zeros stand for the gradients, which are there all at once."""
        self._zeros = self._zeros or [torch.zeros_like(each) for each in self.network.parameters()]
        begin, numbered = self._hvd.allreduce_async_, enumerate(self._zeros)
        for handle in [begin(zeros, op=self._hvd.Average, name=f"exchange {number}") for number, zeros in numbered]:
            self._hvd.synchronize(handle)

    def _plain_copy(self) -> PlainCopy:
        if self._alone is None:
            network = lowered(self._graph, self._job.weights, self._settings)
            self._alone = PlainCopy(network, self._batch, self._settings, self._make_own)
        return self._alone

    def arrays(self, kind: str) -> dict[str, Any]:
        return network_arrays(self.network, self._graph, kind)

    def sends(self) -> list[tuple[int, float]]:
        """By ring."""
        world, rank = self.communicator.world, self.communicator.rank
        size = sum(each.numel() * each.element_size() for each in self.network.parameters())
        return [((rank + 1) % world, 2 * (world - 1) / world * size)]

    def effective(self) -> dict[str, dict[str, Any]]:
        found = self._effective("data", library="horovod", collective="allreduce", overlap="on")
        given = os.environ.get(_THRESHOLD)
        found["bucket"] = as_set(_OWN_THRESHOLD_MIB if given is None else max(1, int(given) // _MIB))
        return found


def _meet(group: Group, store: Any) -> None:
    """Do what Horovod's own launcher does: a server in rank 0 by which processes find each other, and variables."""
    from horovod.runner.common.util.hosts import HostInfo, get_host_assignments  # pyright: ignore
    from horovod.runner.http.http_server import RendezvousServer  # pyright: ignore

    own: Any = [address.rpartition(":")[0] for address in group.addresses]
    hosts = list(dict.fromkeys(own))
    plan: Any = get_host_assignments([HostInfo(host, own.count(host)) for host in hosts], group.world)
    if group.rank == 0:
        server: Any = RendezvousServer()
        port = int(server.start())
        server.init(plan)
        store.set(_PORT, str(port))
    place = plan[group.rank]
    os.environ |= {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": group.address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": store.get(_PORT).decode(),
        "HOROVOD_GLOO_IFACE": _interface_of(own[group.rank]) if group.interface == AUTO else group.interface,
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_HOSTNAME": str(place.hostname),
        **{
            f"HOROVOD_{name.upper()}": str(getattr(place, name))
            for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
        },
    }
    if group.request["bucket"] != AUTO:
        os.environ[_THRESHOLD] = str(int(group.request["bucket"]) * _MIB)


def _interface_of(address: str) -> str:
    """The network interface that has an address; Horovod wants its name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            wanted = struct.pack("256s", name.encode()[:15])
            try:
                found = fcntl.ioctl(asking.fileno(), _ADDRESS_OF_INTERFACE, wanted)[20:24]
            except OSError:  # it has none
                continue
            if socket.inet_ntoa(found) == socket.gethostbyname(address):
                return name
    raise Unsupported(f"no network interface has the address {address}; name one with interface=")
