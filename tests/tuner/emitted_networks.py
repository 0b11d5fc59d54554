"""A graph's script beside what the float64 reference computes, in files: any framework's Python can compare them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from emitted import code_of

from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Activation, Conv, Dense, Dropout, Flatten
from deepstone.graph.reference import step
from deepstone.graph.weights import initial_parameters, synthetic_batch

BATCH = 3


def write_case(folder: Path, graph: Graph, words: str) -> Path:
    """`code.py` and `numbers.npz`: weights, gradients and running statistics in the order of the graph; the loss."""
    folder.mkdir(parents=True)
    path = folder / "graph.json"
    path.write_text(json.dumps(graph.to_json()))
    (folder / "code.py").write_text(code_of(str(path), f"batch={BATCH} {words}"))
    given = dict(word.split("=") for word in words.split())
    order = _Order(graph, framework=given["framework"], nchw=given.get("layout") == "nchw")
    weights = initial_parameters(graph, 0, generic=True)
    images, labels = synthetic_batch(graph, BATCH, 0)
    found = step(graph, weights, images, labels)
    arrays: dict[str, Any] = {"images": order.images(images), "labels": labels, "loss": found.loss}
    trained = [(layer, name) for layer in graph.layers for name in graph.parameters(layer)]
    for number, (layer, name) in enumerate(trained):
        arrays[f"weight{number}"] = order.weight(layer, name, weights[layer.name][name])
        arrays[f"gradient{number}"] = order.weight(layer, name, found.parameter_gradients[layer.name][name])
    learnt = [value for buffers in found.buffers.values() for value in buffers.values()]
    arrays |= {f"buffer{number}": value for number, value in enumerate(learnt)}
    np.savez(folder / "numbers.npz", **arrays)
    return folder


class _Order:
    """How a framework's code has the arrays of a graph."""

    def __init__(self, graph: Graph, *, framework: str, nchw: bool) -> None:
        self._graph = graph
        self._framework = framework
        self._last = framework != "torch" and not nchw

    def images(self, array: Any) -> Any:
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if self._last else array

    def weight(self, layer: Layer, name: str, array: Any) -> Any:
        if name != "weight" or self._framework == "torch" or not isinstance(layer.op, Conv | Dense):
            return array
        if isinstance(layer.op, Dense):
            return self._dense(layer, array)
        if self._framework == "jax" and not self._last:
            return array
        kernel, groups = array.transpose(2, 3, 1, 0), layer.op.groups
        inputs = self._graph.input_shapes(layer)[0][0]
        if self._framework == "tensorflow" and groups > 1 and groups == inputs:
            return kernel.reshape(*layer.op.kernel, groups, -1)
        return kernel

    def _dense(self, layer: Layer, array: Any) -> Any:
        """TensorFlow's code flattens images with channels last, if only dense layers read them."""
        source = self._graph.layer(layer.inputs[0])
        while isinstance(source.op, Activation | Dropout):
            source = self._graph.layer(source.inputs[0])
        if self._framework == "tensorflow" and self._last and isinstance(source.op, Flatten):
            shape = self._graph.input_shapes(source)[0]
            array = array.reshape(len(array), *shape).transpose(0, 2, 3, 1).reshape(len(array), -1)
        return array.T
