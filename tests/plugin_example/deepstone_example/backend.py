"""A backend in pure NumPy: Deepstone's own reference of every operation, in float64. Right, and slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from deepstone.backends.base import LEARNING_RATE, MOMENTUM, Job, LayerResult
from deepstone.backends.cpu_backend import HONOURED_ON_CPU, CpuBackend
from deepstone.graph import reference
from deepstone.graph.graph import Graph
from deepstone.graph.weights import initial_buffers

HONOURED = {
    **HONOURED_ON_CPU,
    "precision": ("auto", "fp64"),
    "algorithm": ("auto", "heuristic"),
    "compile": ("auto", "off"),
    "threads": ("auto", 1),
    "inter_threads": ("auto", 1),
    "isa": ("auto",),
    "dropout": ("off",),
    "input_grad": ("off", "on"),
    "optimizer": ("momentum", "sgd"),
    "checkpointing": ("off",),
    "input": ("resident",),
}


class ExampleBackend(CpuBackend):
    def versions(self) -> dict[str, Any]:
        return {"version": np.__version__}

    def build(self, job: Job) -> None:
        self._begin(job, HONOURED, "example")
        self._network = Graph.from_worker_json(job.graph)
        self._parameters: Any = {
            layer: {name: np.array(array, np.float64) for name, array in arrays.items()}
            for layer, arrays in job.weights.items()
        }
        self._buffers: Any = initial_buffers(self._network)
        self._velocities: Any = None
        self._gradients: Any = {}
        self._loss = float("nan")

    def step(self, program: str) -> Callable[[], None]:
        return {"forward": self._forward, "gradient": self._gradient, "train": self._train}[program]

    def _forward(self) -> None:
        job = self._job
        done = reference.forward_all(
            self._network, self._parameters, job.samples, job.labels, training=False, buffers=self._buffers
        )
        self._loss = float(sum(done[layer.name].value for layer in self._network.losses))

    def _gradient(self) -> None:
        job = self._job
        done = reference.step(self._network, self._parameters, job.samples, job.labels, buffers=self._buffers)
        self._loss, self._gradients = done.loss, done.parameter_gradients
        self._buffers = {**self._buffers, **done.buffers}

    def _train(self) -> None:
        self._gradient()
        momentum = MOMENTUM if self._job.request["optimizer"] == "momentum" else 0.0
        self._parameters, self._velocities = reference.sgd_momentum_update(
            self._parameters, self._gradients, self._velocities, lr=LEARNING_RATE, momentum=momentum
        )

    def observe(self) -> dict[str, dict[str, Any]]:
        seen = {array.dtype.name for arrays in self._parameters.values() for array in arrays.values()}
        precision = "fp64" if seen <= {"float64"} else " and ".join(sorted(seen))
        set_to = {"framework": f"example@{np.__version__}", "device": "cpu", "compile": "off", "threads": 1}
        return self._effective(set_to, {"precision": precision})

    def loss(self) -> float:
        return self._loss

    def arrays(self, kind: str) -> dict[str, Any]:
        held = {"parameters": self._parameters, "gradients": self._gradients, "buffers": self._buffers}[kind]
        return {f"{layer}/{name}": array for layer, arrays in held.items() for name, array in arrays.items()}

    def layer(self, name: str, inputs: dict[str, Any], upstream: Any | None) -> LayerResult:
        layer = next(each for each in self._network.layers if each.name == name)
        done = reference.forward(
            layer.op,
            [inputs[source] for source in layer.inputs],
            self._parameters.get(name, {}),
            training=self._training,
            buffers=self._buffers.get(name, {}),
            labels=self._job.labels,
        )
        if upstream is None:
            return LayerResult(done.value)
        gradients = done.backward(upstream)
        return LayerResult(
            done.value, dict(zip(layer.inputs, gradients.inputs, strict=True)), gradients.parameters, done.buffers
        )


def make_backend() -> ExampleBackend:
    return ExampleBackend()
