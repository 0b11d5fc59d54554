"""What a layer is given when it is timed by itself: arrays of its real shapes, drawn from N(0, 1), always the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from deepstone.graph.batch import seeded
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import SoftmaxCrossEntropy

_SEED = 0


def drawn_inputs(graph: Graph, layer: Layer, batch: int) -> dict[str, Any]:
    """By the name of the layer they come from, float32, batch first, channels first."""
    return {name: _drawn((batch, *graph.shapes[name]), name) for name in dict.fromkeys(layer.inputs)}


def drawn_upstream(graph: Graph, layer: Layer, batch: int) -> Any:
    """The gradient of the layer's output; that of a loss is one number."""
    shape = () if isinstance(layer.op, SoftmaxCrossEntropy) else (batch, *graph.shapes[layer.name])
    return _drawn(shape, f"{layer.name}: upstream")


def sources_with_gradient(graph: Graph, layer: Layer, *, input_grad: bool) -> list[str]:
    """Of the layers it reads, those whose output depends on weights, so that a step needs its gradient."""
    return [name for name in dict.fromkeys(layer.inputs) if input_grad or _is_trained(graph, name)]


def _is_trained(graph: Graph, name: str) -> bool:
    return name in graph.after_parameters or bool(graph.parameters(graph.layer(name)))


def _drawn(shape: tuple[int, ...], name: str) -> Any:
    random = seeded(_SEED, name)
    array = np.empty(shape, np.float32)
    for sample in array if shape else [array]:  # one at a time: the generator works in float64
        sample[...] = random.standard_normal(sample.shape)
    return array
