"""The ONNX Runtime backend: one session for the network, its arrays bound once. It runs networks but does not train."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as errors

from deepstone.backends.base import Job, LayerResult, Unsupported
from deepstone.backends.cpu_backend import PhasedCpuBackend
from deepstone.backends.onnxruntime.lower import LABELS, Lowering, key_of, onnx_version, output_of
from deepstone.backends.wire_graph import LOSS, WireLayer, refuse_other_ops
from deepstone.setups.axes import AUTO
from deepstone.setups.honoured import HONOURED
from deepstone.setups.rules import broken_rule

NAME: Final = f"onnxruntime {ort.__version__}"
PROVIDER: Final = "CPUExecutionProvider"

_PRECISION_OF: Final = {"tensor(float)": "fp32", "tensor(double)": "fp64"}
_ERRORS_ONLY: Final = 3


class OnnxRuntimeBackend(PhasedCpuBackend):
    _samples: Any
    _loss: Any
    _session: Any = None
    _binding: Any = None

    def versions(self) -> dict[str, Any]:
        return {
            "name": "onnxruntime",
            "version": ort.__version__,
            "onnx": onnx_version(),
            "numpy": np.__version__,
            "build": ort.get_build_info(),
        }

    def build(self, job: Job) -> None:
        reason = broken_rule(job.request)
        if reason:
            raise Unsupported(reason)
        self._begin(job, HONOURED["onnxruntime"], NAME)
        graph = self._graph
        lowering = self._new_lowering()
        refuse_other_ops(graph, lowering.ops, NAME)
        for layer in graph.layers:
            if layer.op != "input":
                lowering.add(layer)
        loss = lowering.add_sum_of_losses()
        model = lowering.model([graph.input.name], loss, [])
        self._arrays = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in lowering.arrays.items()}
        self.close()  # the session of the previous job, and its threads
        threads_before = _threads_of_this_process()
        self._session = self._new_session(model, self._arrays)
        self._threads_made = _threads_of_this_process() - threads_before
        # A copy: a step with input=host reads the job's own array.
        self._samples = ort.OrtValue.ortvalue_from_numpy(np.array(job.samples))
        self._labels = ort.OrtValue.ortvalue_from_numpy(self._column_of_labels())
        self._loss = ort.OrtValue.ortvalue_from_shape_and_type([], np.float32)
        self._binding = self._session.io_binding()
        self._binding.bind_ortvalue_input(output_of(graph.input.name), self._samples)
        self._binding.bind_ortvalue_input(LABELS, self._labels)
        self._binding.bind_ortvalue_output(loss, self._loss)

    def _new_lowering(self) -> Lowering:
        return Lowering(self._graph, self._job.weights, len(self._job.labels))

    def _column_of_labels(self) -> Any:
        return np.array(self._job.labels, dtype=np.int64).reshape(-1, 1)

    def _new_session(self, model: bytes, arrays: Mapping[str, Any]) -> Any:
        options = ort.SessionOptions()
        options.log_severity_level = _ERRORS_ONLY
        options.intra_op_num_threads = _thread_count(self._job.request["threads"])
        if self._inter_threads > 1:
            options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
            options.inter_op_num_threads = self._inter_threads
        if arrays:
            options.add_external_initializers(list(arrays), list(arrays.values()))
        return ort.InferenceSession(model, options, providers=[PROVIDER])

    @property
    def _inter_threads(self) -> int:
        asked = self._job.request["inter_threads"]
        return 1 if asked == AUTO else int(asked)

    def step(self, program: str) -> Callable[[], None]:
        assert program == self.phase(), "phases are timed one by one, so there is one program"
        run, binding = self._session.run_with_iobinding, self._binding
        if self._job.request["input"] == "resident":
            return lambda: run(binding)
        fetch = self._fetch

        def step() -> None:
            fetch()
            run(binding)

        return step

    def _fetch(self) -> None:
        self._samples.update_inplace(self._job.samples)

    def step_in_phases(self, set_timestamp: Callable[[int], None]) -> None:
        if self._job.request["input"] == "host":
            self._fetch()
        set_timestamp(0)
        self._session.run_with_iobinding(self._binding)
        set_timestamp(1)

    def observe(self) -> dict[str, dict[str, Any]]:
        observed = {
            "framework": f"onnxruntime@{ort.__version__}",
            "device": self._loss.device_name(),
            "precision": _PRECISION_OF[self._loss.data_type()],
            # In each pool the calling thread works too.
            "threads": self._threads_made - (self._inter_threads - 1) + 1,
        }
        return self._effective({"compile": "graph", "inter_threads": self._inter_threads}, observed)

    def details(self) -> dict[str, Any]:
        return {"execution_providers": self._session.get_providers()}

    def loss(self) -> float:
        return float(self._loss.numpy())

    def arrays(self, kind: str) -> dict[str, Any]:
        if kind == "gradients":
            return {}
        return {
            f"{layer.name}/{name}": self._arrays[key_of(layer.name, name)].numpy()
            for layer in self._graph.layers
            for name in (layer.parameters if kind == "parameters" else layer.buffers)
        }

    def layer(self, name: str, inputs: dict[str, Any], upstream: Any | None) -> LayerResult:
        if upstream is not None:
            raise Unsupported(f"{NAME} has no backward pass")
        layer = self._graph.by_name[name]
        lowering = self._new_lowering()
        lowering.add(layer)
        given = {output_of(source): np.array(inputs[source], dtype=np.float32) for source in layer.sources}
        if layer.op == LOSS:
            given[LABELS] = self._column_of_labels()
        model = lowering.model(layer.sources, output_of(name), self._shape_of(layer))
        arrays = {key: ort.OrtValue.ortvalue_from_numpy(array) for key, array in lowering.arrays.items()}
        (output,) = self._new_session(model, arrays).run(None, given)
        return LayerResult(output)

    def _shape_of(self, layer: WireLayer) -> list[int]:
        return [] if layer.op == LOSS else [len(self._job.labels), *layer.output]

    def is_unsupported(self, error: BaseException) -> bool:
        return isinstance(error, errors.NotImplemented) or super().is_unsupported(error)

    def is_out_of_memory(self, error: BaseException) -> bool:
        failed = isinstance(error, (errors.Fail, errors.RuntimeException))
        return (failed and _reports_out_of_memory(str(error))) or super().is_out_of_memory(error)

    def close(self) -> None:
        self._binding = None
        self._session = None


def _reports_out_of_memory(message: str) -> bool:
    return any(words in message for words in ("Failed to allocate memory", "bad_alloc"))


def _thread_count(requested: Any) -> int:
    """0 is ONNX Runtime's own choice: as many as cores, each bound to one of them.

    If this process may not use all CPUs, its threads would leave the allowed ones; so use as many threads as allowed
    CPUs, without binding.
    """
    if requested != AUTO:
        return int(requested)
    allowed = len(os.sched_getaffinity(0))
    return 0 if allowed == os.cpu_count() else allowed


def _threads_of_this_process() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def make_backend() -> OnnxRuntimeBackend:
    return OnnxRuntimeBackend()
