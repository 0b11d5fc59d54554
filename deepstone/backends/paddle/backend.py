"""The Paddle backend: lowers the graph, runs steps in phases, reports effective values."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from deepstone.backends.base import ADAM_LEARNING_RATE, LEARNING_RATE, MOMENTUM, IsolatedLayer, Job, LayerResult
from deepstone.backends.cpu_backend import EagerBackend
from deepstone.backends.onednn_log import OnednnLog, logging_onednn
from deepstone.backends.paddle.arrays import Arrays
from deepstone.backends.paddle.isolated import isolated_programs, layer_result
from deepstone.backends.paddle.lower import Lowering
from deepstone.backends.paddle.settings import NAME, Settings
from deepstone.backends.wire_graph import InTurn, refuse_other_ops
from deepstone.setups.honoured import HONOURED

_LIBRARIES = Path(paddle.__path__[0]) / "libs"


class PaddleBackend(EagerBackend):
    _steps_done: int  # that updated running statistics

    def __init__(self) -> None:
        self._onednn_log = OnednnLog()

    def versions(self) -> dict[str, Any]:
        return {
            "name": "paddle",
            "version": paddle.__version__,
            "numpy": np.__version__,
            "build": f"commit {paddle.version.commit}, MKL {paddle.version.mkl()}",
        }

    def build(self, job: Job) -> None:
        # A build for GPUs is another package, and operations that run one by one never reach the oneDNN in its wheel.
        request = self._begin(job, HONOURED["paddle"], NAME)
        self._settings = Settings.of(request)
        paddle.set_device("cpu")
        paddle.set_default_dtype(self._settings.dtype)
        paddle.seed(request["seed"])
        self._steps_done = 0
        self._arrays = Arrays(self._graph.layers, job.weights, self._settings, trained=self._settings.training)
        lowering = Lowering(self._graph, self._arrays, self._settings)
        refuse_other_ops(self._graph, lowering.ops, NAME)
        self._network = InTurn(self._graph, lowering.lower)
        self._labels = paddle.to_tensor(job.labels)
        self._samples = paddle.to_tensor(
            job.samples, dtype=self._settings.dtype, stop_gradient=not self._settings.input_grad
        )
        self._update = self._make_update() if self.phase() == "train" else None
        self._prepare_step()

    def _make_update(self) -> Callable[[], None]:
        parameters, kind = self._arrays.flat(), self._job.request["optimizer"]
        if kind == "adam":
            return paddle.optimizer.Adam(ADAM_LEARNING_RATE, parameters=parameters).step
        if kind == "sgd":
            return paddle.optimizer.SGD(LEARNING_RATE, parameters=parameters).step
        if self._settings.exact:
            return _momentum_written_out(parameters)
        return paddle.optimizer.Momentum(LEARNING_RATE, MOMENTUM, parameters=parameters).step

    def _recording(self, on: bool) -> AbstractContextManager[Any]:
        return paddle.set_grad_enabled(on)

    def _backward_function(self) -> Callable[[Any], None]:
        """Gradients are freed, so that backward need not add to them."""
        tensors = [tensor for tensor in [*self._arrays.flat(), self._samples] if not tensor.stop_gradient]

        def backward(loss: Any) -> None:
            for tensor in tensors:
                tensor.clear_gradient(False)
            loss.backward()
            self._steps_done += 1

        return backward

    def first_step(self) -> None:
        with logging_onednn(str(_LIBRARIES / "libdnnl.so.3")) as self._onednn_log:
            self._step()

    def observe(self) -> dict[str, dict[str, Any]]:
        observed: dict[str, Any] = {
            "framework": f"paddle@{paddle.__version__}",
            "device": "cpu" if self._loss.place.is_cpu_place() else str(self._loss.place),
            "precision": "fp64" if self._loss.dtype == paddle.float64 else "fp32",
            "threads": _openmp_threads(),
        }
        if self._onednn_log.available:
            observed["engine"] = "onednn" if self._onednn_log.primitives else "native"
        return self._effective({"compile": "off"}, observed)

    def loss(self) -> float:
        return float(self._loss)

    def arrays(self, kind: str) -> dict[str, Any]:
        found = self._arrays.arrays(kind, self._steps_done)
        return {f"{layer}/{name}": array for (layer, name), array in found.items()}

    def layer(self, name: str, inputs: dict[str, Any], upstream: Any | None) -> LayerResult:
        return layer_result(self._job, name, inputs, upstream)

    def isolated_layer(self, name: str) -> IsolatedLayer:
        return IsolatedLayer(isolated_programs(self._job, name), self)


def _momentum_written_out(parameters: Sequence[Any]) -> Callable[[], None]:
    """The update in double precision: Paddle's own takes the momentum as a float32."""
    plan = [(parameter, paddle.zeros_like(parameter)) for parameter in parameters]

    def update() -> None:
        with paddle.no_grad():
            for parameter, velocity in plan:
                velocity.scale_(MOMENTUM)
                velocity.add_(parameter.grad)
                parameter.subtract_(velocity * LEARNING_RATE)

    return update


def _openmp_threads() -> int:
    """Return the threads of Intel's OpenMP, which MKL uses for matrix products."""
    return int(ctypes.CDLL(str(_LIBRARIES / "libiomp5.so")).omp_get_max_threads())


def make_backend() -> PaddleBackend:
    return PaddleBackend()
