"""A job's arrays: their order in TensorFlow and in the graph, the conversion between both, and the variables.

Images have the order of the axis `layout`. With channels last, a flatten layer need not move data: if only dense layers
read its output, it keeps (height, width, channels), and their weights have that order instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from deepstone.backends.layouts import channels_first, channels_last, kernel_first, kernel_last
from deepstone.backends.tensorflow.settings import Settings
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Activation, Conv, Dense, Dropout, Flatten, Shape

Variable: TypeAlias = Any


def is_depthwise(graph: Graph, layer: Layer) -> bool:
    """Whether a convolution is depthwise; it has its own operation, with its own order of weights.

    That operation takes equal strides only, and no dilation with them.
    """
    op = layer.op
    if not isinstance(op, Conv) or op.groups == 1 or op.groups != graph.input_shapes(layer)[0][0]:
        return False
    return op.stride == (1, 1) or (op.stride[0] == op.stride[1] and op.dilation == (1, 1))


class Arrangement:
    """The arrays of one graph in one layout."""

    def __init__(self, graph: Graph, *, channels_last: bool) -> None:
        self._graph = graph
        self._channels_last = channels_last
        self._unmoved: dict[str, Shape] = {}  # flat layers still in the order of an image, and that image's shape
        if channels_last:
            for layer in graph.layers:
                self._find_unmoved(layer)

    def _find_unmoved(self, layer: Layer) -> None:
        if isinstance(layer.op, Flatten):
            shape = self._graph.input_shapes(layer)[0]
            if shape[0] > 1 and shape[1] * shape[2] > 1 and self._only_dense_layers_read(layer.name):
                self._unmoved[layer.name] = shape
        elif isinstance(layer.op, Activation | Dropout) and layer.inputs[0] in self._unmoved:
            self._unmoved[layer.name] = self._unmoved[layer.inputs[0]]

    def _only_dense_layers_read(self, name: str) -> bool:
        return all(
            isinstance(reader.op, Dense)
            or (isinstance(reader.op, Activation | Dropout) and self._only_dense_layers_read(reader.name))
            for reader in self._graph.consumers[name]
        )

    def moves(self, layer: Layer) -> bool:
        """Whether a flatten layer must move the channels to the front."""
        channels, height, width = self._graph.input_shapes(layer)[0]
        return self._channels_last and layer.name not in self._unmoved and channels > 1 and height * width > 1

    def value(self, name: str, array: Any) -> Any:
        """Convert a layer's output (or its gradient) from the graph's order."""
        if array.ndim == 4:
            return channels_last(array) if self._channels_last else array
        if name in self._unmoved:
            return channels_last(array.reshape(len(array), *self._unmoved[name])).reshape(len(array), -1)
        return array

    def value_of_graph(self, name: str, array: Any) -> Any:
        """The way back."""
        if array.ndim == 4:
            return channels_first(array) if self._channels_last else array
        if name in self._unmoved:
            channels, height, width = self._unmoved[name]
            return channels_first(array.reshape(len(array), height, width, channels)).reshape(len(array), -1)
        return array

    def parameter(self, layer: Layer, name: str, array: Any) -> Any:
        """Convert a layer's parameter (or its gradient) from the graph's order."""
        if name != "weight" or not isinstance(layer.op, Conv | Dense):
            return array
        if isinstance(layer.op, Dense):
            return self.value(layer.inputs[0], array).T
        kernel = kernel_last(array)
        if not is_depthwise(self._graph, layer):
            return kernel
        return kernel.reshape(*layer.op.kernel, layer.op.groups, layer.op.channels // layer.op.groups)

    def parameter_of_graph(self, layer: Layer, name: str, array: Any) -> Any:
        """The way back."""
        if name != "weight" or not isinstance(layer.op, Conv | Dense):
            return array
        if isinstance(layer.op, Dense):
            return self.value_of_graph(layer.inputs[0], array.T)
        return kernel_first(array.reshape(*layer.op.kernel, -1, layer.op.channels))


class Variables:
    """A network's parameters and buffers, in the order of the graph."""

    def __init__(
        self, graph: Graph, weights: Mapping[str, Mapping[str, Any]], arrangement: Arrangement, settings: Settings
    ) -> None:
        self._arrangement = arrangement
        self._owners: list[tuple[Layer, str]] = []  # of each parameter
        self.parameters: list[Variable] = []
        self.buffers: dict[str, Variable] = {}  # as "layer/name"
        self.of_layer: dict[str, dict[str, Variable]] = {}  # both by name
        for layer in graph.layers:
            own = self.of_layer[layer.name] = {}
            for name in graph.parameters(layer):
                array = arrangement.parameter(layer, name, weights[layer.name][name])
                own[name] = tf.Variable(tf.cast(np.ascontiguousarray(array), settings.weights))
                self.parameters.append(own[name])
                self._owners.append((layer, name))
            for name, value in initial_buffers(graph, layer, settings).items():
                own[name] = self.buffers[f"{layer.name}/{name}"] = tf.Variable(value, trainable=False)

    def parameter_arrays(self, tensors: list[Any] | None = None) -> dict[str, Any]:
        """Return the parameters, or tensors in the same order as them, in the graph's order."""
        return {
            f"{layer.name}/{name}": self._arrangement.parameter_of_graph(layer, name, to_numpy(tensor))
            for (layer, name), tensor in zip(self._owners, tensors or self.parameters, strict=True)
        }

    def buffer_arrays(self) -> dict[str, Any]:
        return {name: to_numpy(variable) for name, variable in self.buffers.items()}


def initial_buffers(graph: Graph, layer: Layer, settings: Settings) -> dict[str, Any]:
    """Return running means of 0 and variances of 1. They stay wide even if images are narrow, as the kernels
    require."""
    dtype = np.float64 if settings.weights == tf.float64 else np.float32
    return {
        name: np.full(shape, 1.0 if name == "running_var" else 0.0, dtype)
        for name, shape in graph.buffers(layer).items()
    }


def to_numpy(tensor: Any) -> Any:
    """Convert to NumPy. Narrow formats are widened to float32: NumPy lacks some of them."""
    return (tensor if tensor.dtype in (tf.float32, tf.float64) else tf.cast(tensor, tf.float32)).numpy()
