"""Data parallelism: every process has the whole network and a part of the batch, and gradients are averaged.

    overlap=on    DistributedDataParallel reduces buckets of gradients while backward computes the rest
    overlap=off   after backward, all gradients are packed into one buffer, which is reduced and unpacked

The step as it is trained is the program `train`. `local` is the same step without communication, `meet` adds only that
processes wait for each other: four bytes are reduced. Both let the replicas drift apart; `restore` undoes that.
`exchange` reduces as much as a step does, and computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from deepstone.backends.base import Unsupported, as_observed, as_set
from deepstone.backends.torch.communicator import Communicator
from deepstone.backends.torch.compression import OneBit, PowerSgd, ReducesBucket, compress_buckets, compressing
from deepstone.setups.axes import AUTO

_MIB: Final = 2**20
_LOGGED_EVERY: Final = 100  # steps, by torch's own default
_LOGGED_NS: Final = {
    "forward_s": "forward_compute_time",
    "backward_s": "backward_compute_time",
    "communication_s": "backward_comm_time",
    "overlap_s": "backward_compute_comm_overlap_time",
}


class Replicas:
    """The network of one process among those of the others."""

    def __init__(self, network: nn.Module, communicator: Communicator, request: dict[str, Any]) -> None:
        self.communicator = communicator
        self._network = network
        self._compression = str(request["compression"])
        self._by_root = request["collective"] == "reduce-broadcast"
        self._interface = "chosen by the transport" if request["interface"] == AUTO else str(request["interface"])
        can_overlap = not self._by_root and communicator.transport != "mpi"  # MPI moves data only inside its calls
        overlaps = request["overlap"] == "on" or (request["overlap"] == AUTO and can_overlap)
        self._met = torch.zeros(1, device=next(network.parameters()).device)
        self._packed: _Packed | None = None
        self._zeros: list[Tensor] = []
        self._bucket_mib = None if request["bucket"] == AUTO else int(request["bucket"])
        if overlaps:
            model = self.wrapped()
            compress_buckets(model, self._compression, communicator)
            self.model: nn.Module = model
        else:
            self.model = network
            self._packed = _Packed(communicator, self._compression, by_root=self._by_root)

    @property
    def overlaps(self) -> bool:
        return self._packed is None

    def wrapped(self) -> DistributedDataParallel:
        """A wrapper around the network, without a hook. A second one does not disturb the first: it only acts in the
        backward of its own forward."""
        return DistributedDataParallel(self._network, bucket_cap_mb=self._bucket_mib)

    def compressing(self) -> ReducesBucket | None:
        """What reduces a bucket of another wrapper; None where buckets are not compressed."""
        return compressing(self._compression, self.communicator)

    def reduce(self, tell: Callable[[str], None] | None = None) -> None:
        """What is left to do after backward. `tell` hears at the end of `pack`, `reduce` and `unpack`."""
        if self._packed is not None:
            gradients = [p.grad for p in self._network.parameters() if p.grad is not None]
            if tell is None:
                self._packed.average(gradients)
            else:
                self._packed.average(gradients, tell)

    def apart(self) -> AbstractContextManager[None]:
        """Inside, backward does not communicate."""
        return self.model.no_sync() if isinstance(self.model, DistributedDataParallel) else nullcontext()

    def meet(self) -> None:
        self.communicator.sum(self._met)

    def exchange(self) -> None:
        """As much as a step exchanges, with nothing computed beside it; what is exchanged does not matter."""
        if self._packed is not None:
            self._packed.average(self._stand_ins())
        else:
            for stand_in in self._stand_ins():
                self.communicator.sum(stand_in)

    def _stand_ins(self) -> list[Tensor]:
        if not self._zeros:
            like = next(self._network.parameters())
            if self._packed is not None:
                self._zeros = [torch.zeros_like(p) for p in self._network.parameters() if p.requires_grad]
            else:
                sizes = self.buckets()
                self._zeros = [torch.zeros(size // like.element_size()).to(like) for size in sizes]
        return self._zeros

    def restore(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Take everything from rank 0."""
        tensors = [tensor.detach() for tensor in (*self._network.parameters(), *self._network.buffers())]
        for state in () if optimizer is None else optimizer.state.values():
            tensors += [value for value in state.values() if isinstance(value, Tensor) and value.dim()]
        for tensor in tensors:
            self.communicator.send_from_root(tensor)

    def effective(self) -> dict[str, dict[str, Any]]:
        """The axes between processes: read back where torch tells them, else as they were set."""
        return {
            "processes": as_observed(self.communicator.world),
            "transport": as_observed(self.communicator.transport),
            "scheme": as_set("data"),
            "library": as_set("mpi4py" if self.communicator.transport == "mpi" else "torch"),
            **{name: as_set("none") for name in ("servers", "pipeline", "microbatches", "schedule")},
            "interface": as_set(self._interface),
            "collective": as_set("reduce-broadcast" if self._by_root else "allreduce"),
            "overlap": as_observed("on" if isinstance(self.model, DistributedDataParallel) else "off"),
            "compression": as_set(self._compression),
            "bucket": as_observed(self._bucket_limit_mib()),
        }

    def _bucket_limit_mib(self) -> int | str:
        if not isinstance(self.model, DistributedDataParallel):
            return "none"
        return max(1, round(int(self._ddp_facts()["bucket_cap_bytes"]) / _MIB))

    def _ddp_facts(self) -> dict[str, Any]:
        """What DistributedDataParallel tells of itself."""
        assert isinstance(self.model, DistributedDataParallel)
        return dict(self.model._get_ddp_logging_data())  # pyright: ignore[reportPrivateUsage, reportUnknownArgumentType]

    def logged_times(self, step: Callable[[], None], steps: int) -> dict[str, list[float]]:
        """Run steps, and return what DistributedDataParallel logs of each of them."""
        model = self.model
        if not isinstance(model, DistributedDataParallel):
            raise Unsupported("torch logs times of DistributedDataParallel only, which overlap=off does without")
        found: dict[str, list[float]] = {name: [] for name in _LOGGED_NS}
        model._set_ddp_runtime_logging_sample_rate(1)  # pyright: ignore[reportPrivateUsage]
        for number in range(steps + 2):
            step()
            facts = self._ddp_facts()
            if number > 1:  # it logs a step at the beginning of the next one, and from the second one on
                for name, key in _LOGGED_NS.items():
                    found[name].append(int(facts[key]) * 1e-9)
        model._set_ddp_runtime_logging_sample_rate(_LOGGED_EVERY)  # pyright: ignore[reportPrivateUsage]
        return found

    def buckets(self) -> list[int]:
        """Bytes of each, in the order in which they are sent. Buckets are made anew after the first step."""
        if not isinstance(self.model, DistributedDataParallel):
            size = sum(p.numel() * p.element_size() for p in self._network.parameters() if p.requires_grad)
            return [size]
        facts = self._ddp_facts()
        text = str(facts.get("rebuilt_bucket_sizes") or facts.get("bucket_sizes") or "")
        return [int(part) for part in text.replace(",", " ").split()]


class _Packed:
    """One buffer for all gradients, made when the first ones are there."""

    def __init__(self, communicator: Communicator, compression: str, *, by_root: bool) -> None:
        self._communicator = communicator
        self._compression = compression
        self._sum: Callable[[Tensor], None] = communicator.sum_by_root if by_root else communicator.sum
        self._onebit = OneBit(communicator)
        self._powersgd = PowerSgd(communicator)

    def average(self, gradients: Sequence[Tensor], tell: Callable[[str], None] = lambda _: None) -> None:
        if self._compression == "powersgd":
            self._powersgd.mean_(gradients)
            tell("reduce")
            return
        buffer = torch.cat([gradient.reshape(-1) for gradient in gradients])
        if self._compression == "fp16":
            narrow = buffer.div_(self._communicator.world).half()  # before it is summed, so that the sum stays in range
            tell("pack")
            self._sum(narrow)
            tell("reduce")
            buffer = narrow.to(buffer.dtype)
        elif self._compression == "onebit":
            tell("pack")
            buffer = self._onebit.mean(buffer)
            tell("reduce")
        else:
            tell("pack")
            self._sum(buffer)
            tell("reduce")
            buffer /= self._communicator.world
        parts = buffer.split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))
        tell("unpack")
