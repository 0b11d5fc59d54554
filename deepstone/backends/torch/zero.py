"""Sharded training by DeepSpeed (ZeRO-3), in place of torch's FSDP2: library=deepspeed.

As with FSDP2, every process has a part of the batch and a shard of parameters, gradients and optimizer state. DeepSpeed
itself decides which parameters it keeps whole between forward and backward, so nobody can say how many bytes a step
must send. `bucket` is the size of what is reduced together. Its parameters are fp32 whatever the network has.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from deepstone.backends.base import Job, Missing, Unsupported, as_set
from deepstone.backends.missing import no_library
from deepstone.backends.torch.arrays import named_tensors, network_arrays, to_numpy
from deepstone.backends.torch.communicator import ALL_GATHER, REDUCE_SCATTER, Communicator
from deepstone.backends.torch.member import CopyingMember, LocalComputing, PlainCopy
from deepstone.backends.torch.network import lowered
from deepstone.backends.torch.settings import Settings
from deepstone.backends.torch.training import batch_of, optimizer_of
from deepstone.graph.graph import Graph
from deepstone.setups.axes import AUTO

_MIB: Final = 2**20
_VALUE_BYTES: Final = 4
_STAGE: Final = 3
_OPERATION: Final = "ShareMemCommBuilder"  # sums in shared memory, for which DeepSpeed asks on every CPU


def import_deepspeed(device: str) -> Any:
    """DeepSpeed chooses its device when it is imported. On a CPU it compiles an operation on first use, which takes
    minutes once."""
    on_cpu = device == "cpu" or not torch.cuda.is_available()
    if on_cpu:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    try:
        import deepspeed  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise Missing(no_library("deepspeed", _first_line(error))) from error
    found: Any = deepspeed
    if on_cpu:
        _compile(found)
    return found


def _compile(deepspeed: Any) -> None:
    """One process after the other, so that the first compiles and the others load. torch keeps others out by a file,
    which stays if the process that compiles is killed, and all later ones would wait for it forever. So this has a
    folder of its own, and a lock that ends with its process: under it, such a file is a leftover."""
    folder = _cache_folder() / "torch-extensions" / hashlib.sha256(sys.prefix.encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # of its ninja
    with (folder / "building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for leftover in folder.glob("*/lock"):
            leftover.unlink()
        builder = deepspeed.accelerator.get_accelerator().create_op_builder(_OPERATION)
        try:
            builder.load()  # DeepSpeed keeps it, and does not ask for it again in this process
        except Exception as error:
            raise Missing(
                f"library=deepspeed: DeepSpeed cannot compile its {_OPERATION} ({_first_line(error)}); install a C++ "
                "compiler (on Debian: apt install g++)"
            ) from error


def _cache_folder() -> Path:
    named = os.environ.get("DEEPSTONE_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deepstone"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


class Zero(CopyingMember):
    def __init__(self, job: Job, graph: Graph, settings: Settings, communicator: Communicator) -> None:
        super().__init__(communicator, job.request, settings)
        if settings.weights != torch.float32 or settings.autocast is not None:
            raise Unsupported("library=deepspeed is built for precision=fp32 alone: its own copy of parameters is fp32")
        self._deepspeed = import_deepspeed(settings.device.type)
        assert job.group is not None
        os.environ["LOCAL_RANK"] = str(job.group.local_rank)  # by which DeepSpeed chooses a device
        self._job, self._graph, self._settings = job, graph, settings
        network = lowered(graph, job.weights, settings)
        self._batch, self._make_own = batch_of(job, network, settings)
        optimizer = optimizer_of(list(network.parameters()), settings, self._make_own)
        self._engine: Any = self._deepspeed.initialize(
            model=network, optimizer=optimizer, config=self._config(), dist_init_required=False
        )[0]
        self.network = network
        self._gradients: dict[str, Any] = {}
        self._computing = LocalComputing(self._engine, self._batch, settings, backward=self._backward)
        self._alone: PlainCopy | None = None
        self._stand_ins: tuple[Tensor, Tensor] | None = None

    def _config(self) -> dict[str, Any]:
        zero: dict[str, Any] = {"stage": _STAGE}
        if self._request["bucket"] != AUTO:
            zero["reduce_bucket_size"] = int(self._request["bucket"]) * _MIB // _VALUE_BYTES
        return {
            "train_micro_batch_size_per_gpu": int(self._request["batch"]) // self._settings.accumulate,
            "gradient_accumulation_steps": self._settings.accumulate,
            "zero_optimization": zero,
            "zero_allow_untested_optimizer": True,
            "gradient_clipping": 0.0,  # by itself DeepSpeed clips to a norm of 1, which is another training
        }

    def _backward(self, loss: Tensor) -> None:
        """DeepSpeed counts parts itself, and divides by their number."""
        self._engine.backward(loss * self._settings.accumulate)
        if self._job.keeps_gradients and self._engine.is_gradient_accumulation_boundary():
            of_whole = self._deepspeed.utils.safe_get_full_grad
            named = named_tensors(self.network, self._graph, buffers=False)
            self._gradients = {name: to_numpy(of_whole(parameter)) for name, parameter in named}
        self._engine.step()

    def _train(self) -> None:
        self.last_loss = self._computing.run()

    def _exchange(self) -> None:
        """The least that a step exchanges: all parameters gathered once, all gradients summed once."""
        if self._stand_ins is None:
            world = self.communicator.world
            shard = torch.zeros(-(-self._values() // world), device=self._settings.device)
            self._stand_ins = torch.zeros(len(shard) * world, device=self._settings.device), shard
        whole, shard = self._stand_ins
        ALL_GATHER(whole, shard)
        REDUCE_SCATTER(shard, whole)

    def _values(self) -> int:
        shapes = [shape for layer in self._graph.layers for shape in self._graph.parameters(layer).values()]
        return sum(int(torch.Size(shape).numel()) for shape in shapes)

    def _plain_copy(self) -> PlainCopy:
        if self._alone is None:
            network, world = lowered(self._graph, self._job.weights, self._settings), self.communicator.world
            self._alone = PlainCopy(network, self._batch, self._settings, self._make_own, shards=world)
        return self._alone

    def arrays(self, kind: str) -> dict[str, Any]:
        if kind == "gradients":
            return self._gradients
        if kind == "buffers":
            return network_arrays(self.network, self._graph, kind)
        return network_arrays(self.network, self._graph, kind, self._deepspeed.utils.safe_get_full_fp32_param)

    def effective(self) -> dict[str, dict[str, Any]]:
        found = self._effective("sharded", library="deepspeed")
        found["bucket"] = as_set(max(1, self._engine.zero_reduce_bucket_size() * _VALUE_BYTES // _MIB))
        return found
