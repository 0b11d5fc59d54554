"""The torch backend: ties lowering, settings, steps and observation to the worker."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, fx, nn

from deepstone.backends.base import (
    PHASES,
    Backend,
    ConvolutionTrial,
    InPlace,
    Job,
    LayerResult,
    LoneLayer,
    Marks,
    Unsupported,
    as_observed,
    as_set,
)
from deepstone.backends.scopes import scope_name
from deepstone.backends.torch.ceilings import ceiling_program
from deepstone.backends.torch.checkpoint import Checkpointed
from deepstone.backends.torch.convolutions.trial import convolution_trial
from deepstone.backends.torch.in_place import InPlaceTimer
from deepstone.backends.torch.layer import LayerRunner
from deepstone.backends.torch.lone import lone_programs
from deepstone.backends.torch.lower import Lowering
from deepstone.backends.torch.memory import memory_by_layer
from deepstone.backends.torch.observe import Sighting, watching, widest_isa
from deepstone.backends.torch.own_module import OwnModule, RefusesDropout
from deepstone.backends.torch.primitives import primitives_by_layer
from deepstone.backends.torch.settings import Settings, apply
from deepstone.backends.torch.tracing import Tracer
from deepstone.backends.torch.training import Batch, Steps
from deepstone.backends.torch.values import load, owners, to_numpy
from deepstone.graph.graph import Graph, Layer
from deepstone.setups.axes import format_cpus

_PRECISION_OF = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}
_ISA_OF_CAPABILITY = {"DEFAULT": "sse41", "AVX2": "avx2", "AVX512": "avx512_core"}


class CudaMarks(Marks):
    """CUDA events: times on the device's own clock, taken without waiting for it."""

    def __init__(self, count: int) -> None:
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
        self.waited_s = 0.0

    def set(self, position: int) -> None:
        self._events[position].record()

    def gaps_s(self) -> list[float]:
        pairs = zip(self._events, self._events[1:], strict=False)
        return [before.elapsed_time(after) / 1e3 for before, after in pairs]


class TorchBackend(Backend):
    _job: Job
    _graph: Graph
    _settings: Settings
    _network: nn.Module  # as lowered, whatever runs it
    _steps: Steps
    _tracer: Tracer
    _in_place: InPlaceTimer | None = None

    def __init__(self) -> None:
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
        self._job = job
        self._in_place = None
        self._settings = settings = apply(job.request)
        torch.manual_seed(job.request["seed"])
        self._graph = Graph.from_worker_json(job.graph)
        self._network = self._lower(job.weights)
        images, labels = torch.from_numpy(job.images), torch.from_numpy(job.labels)
        self._steps = Steps(self._compiled(), Batch(images, labels, settings), settings)
        self._step = self._steps.function()
        phases = self.phases()
        self._tracer = Tracer(self._network, self._graph, self._steps, settings, phases, self.synchronize)

    def _lower(self, weights: dict[str, dict[str, Any]]) -> nn.Module:
        settings = self._settings
        if settings.checkpointing and self._graph.opaque:
            raise Unsupported("checkpointing cuts a network between its layers, and a module of your own is only one")
        if settings.checkpointing:
            network: nn.Module = Checkpointed(self._graph, dropout=settings.dropout)
        else:
            lowering = Lowering(self._graph, self._graph.layers, dropout=settings.dropout)
            network = lowering.module(self._graph.input.name)
        load(network, weights)
        settings.place(network)
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
        stray = bool(self._graph.opaque) and eager and not self._settings.dropout
        with (
            RefusesDropout() if stray else nullcontext(),
            watching(self._network.modules(), hooks=eager, onednn=on_cpu) as self._sighting,
        ):
            self._step()
            self.synchronize()
        if not on_cpu:
            torch.cuda.reset_peak_memory_stats()

    def phases(self) -> Sequence[str]:
        return PHASES[: {"forward": 2, "gradient": 3, "train": 4}[self._settings.phase]]

    def step_in_phases(self, mark: Callable[[int], None]) -> None:
        self._steps.step_in_phases(mark)

    def synchronize(self) -> None:
        if self._settings.device.type == "cuda":
            torch.cuda.synchronize()

    def marks(self, count: int) -> Marks:
        return CudaMarks(count) if self._settings.device.type == "cuda" else Marks(count, self.clock)

    def observe(self) -> dict[str, dict[str, Any]]:
        effective = {axis: as_set(value) for axis, value in self._job.request.items()}
        effective["framework"] = as_observed(f"torch@{torch.__version__.partition('+')[0]}")
        device = self._settings.device
        effective["device"] = as_observed("cpu" if device.type == "cpu" else f"gpu:{device.index}")
        effective["threads"] = as_observed(torch.get_num_threads())
        effective["inter_threads"] = as_observed(torch.get_num_interop_threads())
        effective["affinity"] = as_observed(format_cpus(sorted(os.sched_getaffinity(0))))
        effective["compile"] = as_set(self._settings.compile_mode or "off")
        effective["algorithm"] = self._observed_algorithm()
        effective["precision"] = self._observed_precision()
        effective["layout"] = self._observed_layout()
        effective["engine"] = self._observed_engine()
        effective["isa"] = self._observed_isa()
        return effective

    def details(self) -> dict[str, Any]:
        if self._settings.device.type == "cpu":
            by_layer = primitives_by_layer(self._sighting.onednn_log, self._graph, self._job.request["batch"])
            return {"onednn_primitives": self._sighting.primitives, "onednn_by_layer": by_layer}
        return {"gpu_uuid": f"GPU-{torch.cuda.get_device_properties(self._settings.device).uuid}"}

    def _observed_algorithm(self) -> dict[str, Any]:
        if torch.are_deterministic_algorithms_enabled():
            return as_observed("deterministic")
        return as_observed("benchmark" if torch.backends.cudnn.benchmark else "heuristic")

    def _observed_precision(self) -> dict[str, Any]:
        settings = self._settings
        if settings.autocast is not None:
            return as_set(f"{_PRECISION_OF[settings.autocast]}-mixed", seen=self._sighting.dtype == settings.autocast)
        if settings.weights is not torch.float32:
            return as_set(_PRECISION_OF[settings.weights], seen=self._sighting.dtype == settings.weights)
        if settings.device.type == "cpu":
            return as_set("fp32", seen=self._sighting.dtype == torch.float32)
        convolution = torch.backends.cudnn.conv.fp32_precision == "tf32"  # pyright: ignore[reportAttributeAccessIssue]
        product = torch.backends.cuda.matmul.fp32_precision == "tf32"
        return as_observed({(True, True): "tf32", (True, False): "tf32-conv"}.get((convolution, product), "fp32"))

    def _observed_layout(self) -> dict[str, Any]:
        seen = self._sighting.channels_last
        if seen is None:
            return as_set("nhwc" if self._settings.channels_last else "nchw")
        return as_observed("nhwc" if seen else "nchw")

    def _observed_engine(self) -> dict[str, Any]:
        if self._settings.device.type == "cuda":
            return as_observed("cudnn" if torch.backends.cudnn.enabled else "native")
        return as_observed("onednn" if self._sighting.primitives else "native")

    def _observed_isa(self) -> dict[str, Any]:
        if self._settings.device.type == "cuda":
            return as_set("not used")
        capability = torch.backends.cpu.get_cpu_capability()
        seen = widest_isa(self._sighting.primitives) or _ISA_OF_CAPABILITY.get(capability)
        return as_set(self._job.request["isa"]) if seen is None else as_observed(seen)

    def loss(self) -> float:
        assert self._steps.last_loss is not None
        return float(self._steps.last_loss.item())

    def arrays(self, kind: str) -> dict[str, Any]:
        modules = owners(self._network)
        found: dict[str, Any] = {}
        for layer in self._graph.layers:
            owner = modules.get(scope_name(layer.name))
            if owner is None:
                continue
            for name, held in self._held(layer, owner, buffers=kind == "buffers"):
                tensor = held.grad if kind == "gradients" else held
                if tensor is not None:
                    found[f"{layer.name}/{name}"] = to_numpy(tensor)
        return found

    def _held(self, layer: Layer, owner: nn.Module, *, buffers: bool) -> list[tuple[str, Tensor]]:
        """The arrays of a layer by name; of a user's own module all that it has, by their dotted names."""
        if isinstance(owner, OwnModule):
            return list(owner.inner.named_buffers() if buffers else owner.inner.named_parameters())
        if buffers:
            return [(name, owner.get_buffer(name)) for name in self._graph.buffers(layer)]
        return [(name, owner.get_parameter(name)) for name in self._graph.parameters(layer)]

    def layer(self, name: str, inputs: dict[str, Any], upstream: Any | None) -> LayerResult:
        runner = LayerRunner(self._graph, self._settings, self._job.labels)
        return runner.run(self._graph.layer(name), self._job.weights.get(name, {}), inputs, upstream)

    def in_place(self, steps: int) -> InPlace:
        if self._settings.compile_mode is not None:
            return self._tracer.in_place(steps)
        if self._settings.checkpointing:
            raise Unsupported(
                "with checkpointing=on a layer's forward runs again inside backward; use checkpointing=off"
            )
        if self._in_place is None:
            assert isinstance(self._network, fx.GraphModule)
            self._in_place = InPlaceTimer(self._network, self._graph, self._steps, self._settings.device)
        return self._in_place.run(steps, self.synchronize)

    def lone_layer(self, name: str) -> LoneLayer:
        layer = self._graph.layer(name)
        programs = lone_programs(self._graph, layer, self._job.weights.get(name, {}), self._settings, self._job)
        return LoneLayer(programs, self)

    def ceiling(self, wanted: dict[str, Any]) -> LoneLayer:
        return LoneLayer({str(wanted["kind"]): ceiling_program(wanted, self._settings.device)}, self)

    def convolution(self, name: str, direction: str) -> ConvolutionTrial:
        weights = self._job.weights.get(name, {})
        return convolution_trial(self._graph, name, direction, weights, self._job.request, self._settings, self)

    def memory_by_layer(self) -> list[tuple[str, dict[str, Any]]]:
        if self._settings.checkpointing:
            raise Unsupported("with checkpointing=on backward makes again what forward did not keep")
        if self._settings.compile_mode is not None:
            raise Unsupported("a compiled step keeps what its compiler chose, not what layers do; use compile=off")
        assert isinstance(self._network, fx.GraphModule)
        return memory_by_layer(self._network, self._graph, self._steps, self._settings.device)

    def available_bytes(self) -> Any:
        if self._settings.device.type == "cpu":
            return {"absent": "the step ran on the CPU"}
        free_bytes, _ = torch.cuda.mem_get_info()
        return free_bytes + torch.cuda.memory_reserved()

    def trace(self, steps: int, path: str) -> dict[str, Any]:
        return self._tracer.trace(steps, path)

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


def make_backend() -> TorchBackend:
    return TorchBackend()
