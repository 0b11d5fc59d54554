"""The torch backend: ties lowering, settings, steps and observation to the worker."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from deepstone.backends.base import PHASES, Backend, Job, Marks
from deepstone.backends.torch.checkpoint import Checkpointed
from deepstone.backends.torch.lower import Lowering, module_name
from deepstone.backends.torch.observe import Sighting, watching, widest_isa
from deepstone.backends.torch.settings import Settings, apply
from deepstone.backends.torch.training import Batch, Steps
from deepstone.graph.graph import Graph
from deepstone.setups.axes import format_cpus

_PRECISION_OF = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
_ISA_OF_CAPABILITY = {"DEFAULT": "sse41", "AVX2": "avx2", "AVX512": "avx512_core"}


class CudaMarks(Marks):
    """CUDA events: times on the device's own clock, taken without waiting for it."""

    def __init__(self, count: int) -> None:
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(count)]

    def set(self, position: int) -> None:
        self._events[position].record()

    def gaps_s(self) -> list[float]:
        pairs = zip(self._events, self._events[1:], strict=False)
        return [before.elapsed_time(after) / 1e3 for before, after in pairs]


class TorchBackend(Backend):
    _graph: Graph
    _settings: Settings
    _network: nn.Module  # as lowered, whatever runs it
    _steps: Steps

    def __init__(self) -> None:
        self._request: dict[str, Any] = {}
        self._sighting = Sighting()

    def versions(self) -> dict[str, Any]:
        versions: dict[str, Any] = {
            "name": "torch",
            "version": torch.__version__,
            "numpy": np.__version__,
            "cuda": torch.version.cuda or {"absent": "torch is built without CUDA"},
            "cudnn": torch.backends.cudnn.version() or {"absent": "torch is built without cuDNN"},
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "build": torch.__config__.show(),
        }
        if torch.cuda.is_available():
            versions["gpu"] = torch.cuda.get_device_name()
        return versions

    def build(self, job: Job) -> None:
        self._request = job.request
        self._settings = settings = apply(job.request)
        torch.manual_seed(job.request["seed"])
        self._graph = Graph.from_json(_plain_graph(job.graph))
        self._network = self._lower(job.weights)
        images, labels = torch.from_numpy(job.images), torch.from_numpy(job.labels)
        self._steps = Steps(self._compiled(), Batch(images, labels, settings), settings)
        self._step = self._steps.function()

    def _lower(self, weights: dict[str, dict[str, Any]]) -> nn.Module:
        settings = self._settings
        if settings.checkpointing:
            network: nn.Module = Checkpointed(self._graph, dropout=settings.dropout)
        else:
            lowering = Lowering(self._graph, self._graph.layers, dropout=settings.dropout)
            network = lowering.module(self._graph.input.name)
        _load(network, weights)
        network.train(settings.phase != "forward")
        network.to(settings.device, dtype=settings.weights)
        if settings.channels_last:
            network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        return network

    def _compiled(self) -> nn.Module:
        if self._settings.compile_mode is None:
            return self._network
        return cast(nn.Module, torch.compile(self._network, mode=self._settings.compile_mode))

    def phase(self) -> str:
        return self._settings.phase

    def step(self, program: str) -> Callable[[], None]:
        assert program == self._settings.phase, "torch times phases with marks, so it has one program"
        return self._step

    def first_step(self) -> None:
        on_cpu = self._settings.device.type == "cpu"
        eager = self._settings.compile_mode is None
        with watching(self._network.modules(), hooks=eager, onednn=on_cpu) as self._sighting:
            self._step()
            self.synchronize()
        if not on_cpu:
            torch.cuda.reset_peak_memory_stats()

    def phases(self) -> Sequence[str] | None:
        return PHASES[: {"forward": 2, "gradient": 3, "train": 4}[self._settings.phase]]

    def step_in_phases(self, mark: Callable[[int], None]) -> None:
        self._steps.step_in_phases(mark)

    def synchronize(self) -> None:
        if self._settings.device.type == "cuda":
            torch.cuda.synchronize()

    def marks(self, count: int) -> Marks:
        return CudaMarks(count) if self._settings.device.type == "cuda" else Marks(count, self.clock)

    def observe(self) -> dict[str, dict[str, Any]]:
        effective = {axis: _set(value) for axis, value in self._request.items()}
        effective["framework"] = _observed(f"torch@{torch.__version__.partition('+')[0]}")
        device = self._settings.device
        effective["device"] = _observed("cpu" if device.type == "cpu" else f"gpu:{device.index}")
        effective["threads"] = _observed(torch.get_num_threads())
        effective["inter_threads"] = _observed(torch.get_num_interop_threads())
        effective["affinity"] = _observed(format_cpus(sorted(os.sched_getaffinity(0))))
        effective["compile"] = _set(self._settings.compile_mode or "off")
        effective["algorithm"] = self._observed_algorithm()
        effective["precision"] = self._observed_precision()
        effective["layout"] = self._observed_layout()
        effective["engine"] = self._observed_engine()
        effective["isa"] = self._observed_isa()
        return effective

    def details(self) -> dict[str, Any]:
        if self._settings.device.type == "cpu":
            return {"onednn_primitives": self._sighting.primitives}
        return {"gpu_uuid": f"GPU-{torch.cuda.get_device_properties(self._settings.device).uuid}"}

    def _observed_algorithm(self) -> dict[str, Any]:
        if torch.are_deterministic_algorithms_enabled():
            return _observed("deterministic")
        return _observed("benchmark" if torch.backends.cudnn.benchmark else "heuristic")

    def _observed_precision(self) -> dict[str, Any]:
        settings = self._settings
        if settings.autocast is not None:
            return _set(f"{_PRECISION_OF[settings.autocast]}-mixed", seen=self._sighting.dtype == settings.autocast)
        if settings.weights is not torch.float32:
            return _set(_PRECISION_OF[settings.weights], seen=self._sighting.dtype == settings.weights)
        if settings.device.type == "cpu":
            return _set("fp32", seen=self._sighting.dtype == torch.float32)
        convolution = torch.backends.cudnn.conv.fp32_precision == "tf32"  # pyright: ignore[reportAttributeAccessIssue]
        product = torch.backends.cuda.matmul.fp32_precision == "tf32"
        return _observed({(True, True): "tf32", (True, False): "tf32-conv"}.get((convolution, product), "fp32"))

    def _observed_layout(self) -> dict[str, Any]:
        seen = self._sighting.channels_last
        if seen is None:
            return _set("nhwc" if self._settings.channels_last else "nchw")
        return _observed("nhwc" if seen else "nchw")

    def _observed_engine(self) -> dict[str, Any]:
        if self._settings.device.type == "cuda":
            return _observed("cudnn" if torch.backends.cudnn.enabled else "native")
        return _observed("onednn" if self._sighting.primitives else "native")

    def _observed_isa(self) -> dict[str, Any]:
        if self._settings.device.type == "cuda":
            return _set("not used")
        capability = torch.backends.cpu.get_cpu_capability()
        seen = widest_isa(self._sighting.primitives) or _ISA_OF_CAPABILITY.get(capability)
        return _set(self._request["isa"]) if seen is None else _observed(seen)

    def loss(self) -> float:
        assert self._steps.last_loss is not None
        return float(self._steps.last_loss.item())

    def arrays(self, kind: str) -> dict[str, Any]:
        owners = _owners(self._network)
        found: dict[str, Any] = {}
        for layer in self._graph.layers:
            owner = owners.get(module_name(layer.name))
            if owner is None:
                continue
            if kind == "buffers":
                for name in self._graph.buffers(layer):
                    found[f"{layer.name}/{name}"] = _to_numpy(owner.get_buffer(name))
                continue
            for name in self._graph.parameters(layer):
                parameter = owner.get_parameter(name)
                tensor = parameter.grad if kind == "gradients" else parameter
                if tensor is not None:
                    found[f"{layer.name}/{name}"] = _to_numpy(tensor)
        return found

    def memory(self) -> dict[str, Any]:
        if self._settings.device.type == "cpu":
            absent = {"absent": "the step ran on the CPU; see host_peak_bytes"}
            return {"device_allocated_bytes": absent, "device_reserved_bytes": absent}
        return {
            "device_allocated_bytes": torch.cuda.max_memory_allocated(),
            "device_reserved_bytes": torch.cuda.max_memory_reserved(),
        }

    def is_out_of_memory(self, error: BaseException) -> bool:
        on_cpu = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
        return isinstance(error, torch.OutOfMemoryError) or on_cpu or super().is_out_of_memory(error)


def _plain_graph(described: dict[str, Any]) -> dict[str, Any]:
    """The graph without the shapes that Graph.to_worker_json spells out for workers in old Pythons."""
    layers = [{k: v for k, v in layer.items() if k not in ("output", "parameters")} for layer in described["layers"]]
    return {**described, "layers": layers}


def _owners(network: nn.Module) -> dict[str, nn.Module]:
    return {path.rpartition(".")[2]: module for path, module in network.named_modules()}


def _load(network: nn.Module, weights: dict[str, dict[str, Any]]) -> None:
    owners = _owners(network)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # we only read it
        for layer, parameters in weights.items():
            for name, array in parameters.items():
                owners[module_name(layer)].get_parameter(name).copy_(torch.from_numpy(array))


def _to_numpy(tensor: Tensor) -> Any:
    return tensor.detach().to("cpu", torch.float32).contiguous().numpy()


def _observed(value: Any) -> dict[str, Any]:
    return {"value": value, "source": "observed"}


def _set(value: Any, *, seen: bool = False) -> dict[str, Any]:
    return {"value": value, "source": "observed" if seen else "set"}


def make_backend() -> TorchBackend:
    return TorchBackend()
