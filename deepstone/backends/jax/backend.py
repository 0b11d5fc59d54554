"""The JAX backend: ties lowering, settings, steps and observation to the worker."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jaxlib
import numpy as np

from deepstone.backends.base import Backend, InPlace, Job, LayerResult, LoneLayer, Marks, as_observed, as_set
from deepstone.backends.jax.chain import DEEP, ChainedSteps
from deepstone.backends.jax.gpu import gpu_uuid
from deepstone.backends.jax.launch import PREALLOCATE
from deepstone.backends.jax.layer import LayerRunner
from deepstone.backends.jax.marks import OneAheadMarks
from deepstone.backends.jax.network import Network
from deepstone.backends.jax.observe import Sighting, made_by_xla, pool_threads, seen_in, temporary_bytes
from deepstone.backends.jax.settings import Settings, apply
from deepstone.backends.jax.state import Batch, State
from deepstone.backends.jax.training import Steps, WholeSteps
from deepstone.backends.jax.values import buffer_keys, from_device, parameter_keys, to_device
from deepstone.graph.graph import Graph
from deepstone.graph.weights import initial_buffers
from deepstone.setups.axes import format_cpus

if TYPE_CHECKING:  # loaded when layers are asked for
    from deepstone.backends.jax.trace import Tracer


class JaxBackend(Backend):
    _job: Job
    _graph: Graph
    _settings: Settings
    _state: State
    _steps: Steps
    _layers: LayerRunner
    _sighting: Sighting
    _marks: OneAheadMarks | None = None
    _made_tracer: Tracer | None = None

    def versions(self) -> dict[str, Any]:
        return {
            "name": "jax",
            "version": jax.__version__,
            "jaxlib": jaxlib.__version__,
            "numpy": np.__version__,
        }

    def build(self, job: Job) -> None:
        self._job = job
        self._made_tracer = None
        self._settings = settings = apply(job.request)
        self._graph = graph = Graph.from_worker_json(job.graph)
        initial = initial_buffers(graph)
        parameters = [self._placed(layer, name, job.weights) for layer, name in parameter_keys(graph)]
        buffers = [self._placed(layer, name, initial) for layer, name in buffer_keys(graph)]
        self._state = state = State(parameters, buffers, settings)
        batch = Batch(job.images, job.labels, settings)
        if len(graph) > DEEP:
            self._steps = ChainedSteps(graph, batch, state, settings)
        else:
            self._steps = WholeSteps(Network(graph, settings), batch, state, settings)
        self._layers = LayerRunner(graph, settings, job.labels)

    def _placed(self, layer: str, name: str, arrays: Mapping[str, Mapping[str, Any]]) -> Any:
        return to_device(self._graph.layer(layer).op, name, arrays[layer][name], self._settings)

    def phase(self) -> str:
        return self._settings.phase

    def step(self, program: str) -> Callable[[], None]:
        return self._steps.function(program)

    def first_step(self) -> None:
        super().first_step()
        self._sighting = seen_in(program.as_text() for program in self._steps.lowered)

    def phases(self) -> Sequence[str] | None:
        return None

    def synchronize(self) -> None:
        if self._marks is not None:
            self._marks.finish()
        self._state.wait()

    def marks(self, count: int) -> Marks:
        self._marks = OneAheadMarks(count, self.clock, lambda: self._state.loss)
        return self._marks

    def observe(self) -> dict[str, dict[str, Any]]:
        settings = self._settings
        effective = {axis: as_set(value) for axis, value in self._job.request.items()}
        effective["framework"] = as_observed(f"jax@{jax.__version__}")
        effective["device"] = as_observed(self._observed_device())
        effective["threads"] = as_observed(pool_threads()) if settings.on_cpu else as_set("not used")
        effective["inter_threads"] = as_set("not used")
        effective["affinity"] = as_observed(format_cpus(sorted(os.sched_getaffinity(0))))
        effective["compile"] = as_set("default")
        effective["engine"] = as_observed("xla")
        effective["algorithm"] = self._algorithm()
        effective["precision"] = self._observed_precision()
        effective["layout"] = as_set(settings.order.name, seen=self._sighting.layout == settings.order.name)
        effective["isa"] = as_set("no limit" if settings.on_cpu else "not used")
        return effective

    def _observed_device(self) -> str:
        platforms = {device.platform for device in self._state.loss.devices()}
        return "cpu" if platforms == {"cpu"} else self._settings.device_name

    def _algorithm(self) -> dict[str, Any]:
        asked = self._job.request["algorithm"]
        if asked != "auto":
            return as_set(asked)
        return as_set("heuristic" if self._settings.on_cpu else "benchmark")  # see settings.py

    def _observed_precision(self) -> dict[str, Any]:
        """The type of products is read from the program; whether XLA takes TF32 for them is not written there."""
        settings = self._settings
        type_of_products = {"tf32": "fp32", "tf32-conv": "fp32", "bf16-mixed": "bf16"}
        expected = type_of_products.get(settings.precision, settings.precision)
        may_be_narrowed = not settings.on_cpu and expected == "fp32"
        return as_set(settings.precision, seen=self._sighting.number_type == expected and not may_be_narrowed)

    def details(self) -> dict[str, Any]:
        programs = self._steps.compiled
        found: dict[str, Any] = {
            "programs": len(programs),  # more than one where the graph is deep: see chain.py
            "program_temporary_bytes": max(temporary_bytes(program) for program in programs),
            "xla": made_by_xla(program.as_text() for program in programs),
            "platform": self._settings.device.client.platform_version,
        }
        if not self._settings.on_cpu:
            found["gpu"] = self._settings.device.device_kind
            found["preallocate"] = os.environ.get(PREALLOCATE, "true")
            uuid = gpu_uuid(self._settings.device)
            if uuid is not None:
                found["gpu_uuid"] = uuid
        return found

    def loss(self) -> float:
        return float(self._state.loss)

    def arrays(self, kind: str) -> dict[str, Any]:
        state, graph = self._state, self._graph
        if kind == "gradients" and self.phase() != "gradient":
            return {}
        keys, arrays = {
            "parameters": (parameter_keys(graph), state.parameters),
            "gradients": (parameter_keys(graph), state.gradients),
            "buffers": (buffer_keys(graph), state.buffers),
        }[kind]
        return {
            f"{layer}/{name}": from_device(graph.layer(layer).op, name, array, self._settings)
            for (layer, name), array in zip(keys, arrays, strict=True)
        }

    def layer(self, name: str, inputs: dict[str, Any], upstream: Any | None) -> LayerResult:
        return self._layers.run(self._graph.layer(name), self._job.weights.get(name, {}), inputs, upstream)

    def in_place(self, steps: int) -> InPlace:
        return self._tracer().in_place(steps)

    def trace(self, steps: int, path: str) -> dict[str, Any]:
        return self._tracer().trace(steps, path)

    def _tracer(self) -> Tracer:
        if self._made_tracer is None:
            from deepstone.backends.jax.trace import Tracer

            self._made_tracer = Tracer(
                self._graph,
                self._steps,
                self.phase(),
                self.synchronize,
                self._job.scratch,
                on_cpu=self._settings.on_cpu,
            )
        return self._made_tracer

    def lone_layer(self, name: str) -> LoneLayer:
        from deepstone.backends.jax.lone import lone_layer

        layer, weights = self._graph.layer(name), self._job.weights.get(name, {})
        return lone_layer(self._graph, layer, weights, self._layers, self._settings)

    def ceiling(self, wanted: dict[str, Any]) -> LoneLayer:
        from deepstone.backends.jax.ceilings import ceiling

        return ceiling(wanted, self._settings)

    def memory(self) -> dict[str, Any]:
        """JAX cannot forget a peak, so it is that of the whole process, loading the weights included."""
        if self._settings.on_cpu:
            absent = {"absent": "the step ran on the CPU; see host_peak_bytes"}
            return {"device_allocated_bytes": absent, "device_reserved_bytes": absent}
        found = self._settings.device.memory_stats() or {}
        absent = {"absent": "this JAX does not report it"}
        return {
            "device_allocated_bytes": found.get("peak_bytes_in_use", absent),
            "device_reserved_bytes": found.get("peak_pool_bytes", absent),
        }

    def is_out_of_memory(self, error: BaseException) -> bool:
        exhausted = isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
        return exhausted or super().is_out_of_memory(error)


def make_backend() -> JaxBackend:
    return JaxBackend()
