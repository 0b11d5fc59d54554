"""The TensorFlow backend: ties lowering, settings, steps and observation to the worker."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from deepstone.backends.base import Backend, InPlace, Job, LayerResult, LoneLayer, Marks, as_observed, as_set
from deepstone.backends.tensorflow.arrangement import Arrangement
from deepstone.backends.tensorflow.isa import widest_isa
from deepstone.backends.tensorflow.layer import LayerRunner
from deepstone.backends.tensorflow.lower import Lowering
from deepstone.backends.tensorflow.network import Network
from deepstone.backends.tensorflow.observe import Sighting, watching
from deepstone.backends.tensorflow.settings import Settings, apply
from deepstone.backends.tensorflow.training import Steps
from deepstone.backends.tensorflow.variables import Variables
from deepstone.graph.graph import Graph
from deepstone.setups.axes import format_cpus

if TYPE_CHECKING:  # loaded when layers are asked for
    from deepstone.backends.tensorflow.trace import Tracer


class SynchronizingMarks(Marks):
    """TensorFlow has no events to time a GPU with, so each mark waits for it."""

    def set(self, position: int) -> None:
        tf.test.experimental.sync_devices()
        super().set(position)


class TensorFlowBackend(Backend):
    _job: Job
    _graph: Graph
    _settings: Settings
    _arrangement: Arrangement
    _variables: Variables
    _steps: Steps
    _made_tracer: Tracer | None = None

    def __init__(self) -> None:
        self._sighting = Sighting()

    def versions(self) -> dict[str, Any]:
        build = tf.sysconfig.get_build_info()
        return {
            "name": "tensorflow",
            "version": tf.__version__,
            "numpy": np.__version__,
            "cuda": build.get("cuda_version", {"absent": "TensorFlow is built without CUDA"}),
            "cudnn": build.get("cudnn_version", {"absent": "TensorFlow is built without cuDNN"}),
            "compiled_with": " ".join(tf.sysconfig.get_compile_flags()),
        }

    def build(self, job: Job) -> None:
        self._job = job
        self._made_tracer = None
        self._settings = settings = apply(job.request)
        self._graph = graph = Graph.from_worker_json(job.graph)
        self._arrangement = Arrangement(graph, channels_last=settings.channels_last)
        with tf.device(settings.device):
            self._variables = Variables(graph, job.weights, self._arrangement, settings)
            network = Network(graph, Lowering(graph, self._arrangement, settings), self._variables, settings)
            images = self._arrangement.value(graph.input.name, job.images)
            self._steps = Steps(network, self._variables, images, job.labels, settings)
            self._step = self._steps.program(settings.phase)
            self._layers = LayerRunner(graph, self._arrangement, settings, job.labels)

    def phase(self) -> str:
        return self._settings.phase

    def step(self, program: str) -> Callable[[], None]:
        if program == self._settings.phase:
            return self._step
        with tf.device(self._settings.device):
            return self._steps.program(program)

    def first_step(self) -> None:
        with watching() as self._sighting:
            self._step()
            self.synchronize()
        if self._settings.on_gpu:
            tf.config.experimental.reset_memory_stats(self._settings.device.removeprefix("/"))

    def phases(self) -> Sequence[str] | None:
        return None

    def synchronize(self) -> None:
        if self._settings.on_gpu:
            tf.test.experimental.sync_devices()

    def marks(self, count: int) -> Marks:
        return SynchronizingMarks(count, self.clock) if self._settings.on_gpu else Marks(count, self.clock)

    def observe(self) -> dict[str, dict[str, Any]]:
        settings = self._settings
        effective = {axis: as_set(value) for axis, value in self._job.request.items()}
        effective["framework"] = as_observed(f"tensorflow@{tf.__version__}")
        effective["device"] = self._observed_device()
        effective["threads"] = as_observed(settings.threads.intra)
        effective["inter_threads"] = as_observed(settings.threads.inter)
        effective["affinity"] = as_observed(format_cpus(sorted(os.sched_getaffinity(0))))
        effective["compile"] = as_set(
            settings.compile, seen=settings.compile == "graph" and bool(self._sighting.operations)
        )
        effective["algorithm"] = as_set(settings.algorithm)
        seen = settings.precision != "tf32" and self._sighting.dtypes == {settings.activations}
        effective["precision"] = as_set(settings.precision, seen=seen)
        effective["layout"] = self._observed_layout()
        effective["engine"] = self._observed_engine()
        effective["isa"] = as_set("not used" if settings.on_gpu else widest_isa())
        return effective

    def details(self) -> dict[str, Any]:
        return {"operations": self._sighting.operations}

    def _observed_device(self) -> dict[str, Any]:
        settings = self._settings
        return as_set(settings.effective_device, seen=self._sighting.devices == {settings.device.removeprefix("/")})

    def _observed_layout(self) -> dict[str, Any]:
        seen = self._sighting.data_formats
        if len(seen) == 1:
            return as_observed(next(iter(seen)).lower())
        return as_set(self._settings.data_format.lower())

    def _observed_engine(self) -> dict[str, Any]:
        settings = self._settings
        if settings.engine not in ("onednn", "native") or not self._sighting.operations:
            return as_set(settings.engine)
        return as_observed("onednn" if self._sighting.onednn else "native")

    def loss(self) -> float:
        assert self._steps.last_loss is not None
        return float(self._steps.last_loss.numpy())

    def arrays(self, kind: str) -> dict[str, Any]:
        if kind == "buffers":
            return self._variables.buffer_arrays()
        if kind == "parameters":
            return self._variables.parameter_arrays(self._variables.parameters)
        return self._variables.parameter_arrays(self._steps.last_gradients) if self._steps.last_gradients else {}

    def layer(self, name: str, inputs: dict[str, Any], upstream: Any | None) -> LayerResult:
        with tf.device(self._settings.device):
            return self._layers.run(self._graph.layer(name), self._job.weights.get(name, {}), inputs, upstream)

    def in_place(self, steps: int) -> InPlace:
        return self._tracer().in_place(steps)

    def trace(self, steps: int, path: str) -> dict[str, Any]:
        return self._tracer().trace(steps, path)

    def _tracer(self) -> Tracer:
        if self._made_tracer is None:
            from deepstone.backends.tensorflow.trace import Tracer

            recorded = self._steps.recorded.get(self.phase())
            self._made_tracer = Tracer(self._graph, self._step, recorded, self._job.scratch, self._settings)
        return self._made_tracer

    def lone_layer(self, name: str) -> LoneLayer:
        from deepstone.backends.tensorflow.lone import lone_programs

        layer, weights = self._graph.layer(name), self._job.weights.get(name, {})
        with tf.device(self._settings.device):
            programs = lone_programs(self._graph, layer, weights, self._layers, self._arrangement, self._settings)
        return LoneLayer(programs, timing=self)

    def ceiling(self, wanted: dict[str, Any]) -> LoneLayer:
        from deepstone.backends.tensorflow.ceilings import ceiling_program

        with tf.device(self._settings.device):
            program = ceiling_program(wanted)
        return LoneLayer({str(wanted["kind"]): program}, timing=self)

    def memory(self) -> dict[str, Any]:
        if not self._settings.on_gpu:
            absent = {"absent": "the step ran on the CPU; see host_peak_bytes"}
            return {"device_allocated_bytes": absent, "device_reserved_bytes": absent}
        info = tf.config.experimental.get_memory_info(self._settings.device.removeprefix("/"))
        return {
            "device_allocated_bytes": info["peak"],
            "device_reserved_bytes": {"absent": "TensorFlow does not say how much it has reserved"},
        }

    def is_unsupported(self, error: BaseException) -> bool:
        return isinstance(error, tf.errors.UnimplementedError) or super().is_unsupported(error)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, tf.errors.ResourceExhaustedError) or super().is_out_of_memory(error)


def make_backend() -> TensorFlowBackend:
    return TensorFlowBackend()
