"""A network's parameters and buffers as TensorFlow variables, and NumPy arrays of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from deepstone.backends.tensorflow.arrangement import Arrangement
from deepstone.backends.tensorflow.settings import Settings
from deepstone.graph.graph import Graph, Layer

Variable: TypeAlias = Any


class Variables:
    """By layer, then by name; in the order of the graph."""

    def __init__(
        self, graph: Graph, weights: Mapping[str, Mapping[str, Any]], arrangement: Arrangement, settings: Settings
    ) -> None:
        self._arrangement = arrangement
        self._owners: list[tuple[Layer, str]] = []  # of each parameter
        self.parameters: list[Variable] = []
        self.buffers: dict[str, Variable] = {}  # as "layer/name"
        self.held: dict[str, dict[str, Variable]] = {}
        for layer in graph.layers:
            held = self.held[layer.name] = {}
            for name in graph.parameters(layer):
                array = arrangement.parameter(layer, name, weights[layer.name][name])
                held[name] = tf.Variable(tf.cast(np.ascontiguousarray(array), settings.weights))
                self.parameters.append(held[name])
                self._owners.append((layer, name))
            for name, value in initial_buffers(graph, layer, settings).items():
                held[name] = self.buffers[f"{layer.name}/{name}"] = tf.Variable(value, trainable=False)

    def parameter_arrays(self, tensors: list[Any] | None = None) -> dict[str, Any]:
        """The parameters, or tensors that stand for them in the same order, as the graph has them."""
        return {
            f"{layer.name}/{name}": self._arrangement.parameter_of_graph(layer, name, to_numpy(tensor))
            for (layer, name), tensor in zip(self._owners, tensors or self.parameters, strict=True)
        }

    def buffer_arrays(self) -> dict[str, Any]:
        return {name: to_numpy(variable) for name, variable in self.buffers.items()}


def initial_buffers(graph: Graph, layer: Layer, settings: Settings) -> dict[str, Any]:
    """Running means of 0 and variances of 1. They stay wide where images are narrow, as the kernels want them."""
    dtype = np.float64 if settings.weights == tf.float64 else np.float32
    return {
        name: np.full(shape, 1.0 if name == "running_var" else 0.0, dtype)
        for name, shape in graph.buffers(layer).items()
    }


def to_numpy(tensor: Any) -> Any:
    """Narrow formats are widened to float32: NumPy does not know them all."""
    return (tensor if tensor.dtype in (tf.float32, tf.float64) else tf.cast(tensor, tf.float32)).numpy()
