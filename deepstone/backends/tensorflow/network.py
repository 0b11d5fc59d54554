"""Runs the layers of a graph in order, in a recorded program or an eager step."""

from __future__ import annotations

from typing import Any, TypeAlias

import tensorflow as tf

from deepstone.backends.owners import scope_name
from deepstone.backends.tensorflow.arrays import Variables
from deepstone.backends.tensorflow.lower import LayerFunction, Lowering, Pass
from deepstone.backends.tensorflow.settings import Settings
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Input, SoftmaxCrossEntropy
from deepstone.graph.segments import split

Tensor: TypeAlias = Any


class Network:
    """Maps samples and labels to the sum of the losses. With checkpointing, all but the last segment run twice."""

    def __init__(self, graph: Graph, lowering: Lowering, variables: Variables, settings: Settings) -> None:
        layers = split(graph) if settings.checkpointing else [list(graph.layers)]
        self._segments = [Segment(graph, some, lowering, variables, settings) for some in layers]
        self._activations = settings.activations

    def loss(self, samples: Tensor, one_pass: Pass) -> Tensor:
        x = samples if samples.dtype == self._activations else tf.cast(samples, self._activations)
        for segment in self._segments[:-1]:
            x = segment.run_twice(x, one_pass)
        return self._segments[-1].run(x, one_pass)


class Segment:
    """Consecutive layers. Each output is freed after its last use, as local variables of hand-written code would be."""

    def __init__(
        self, graph: Graph, layers: list[Layer], lowering: Lowering, variables: Variables, settings: Settings
    ) -> None:
        last_use = {name: layer.name for layer in graph.layers for name in layer.inputs}
        self._source = layers[0].name if isinstance(layers[0].op, Input) else layers[0].inputs[0]
        self._layers: list[tuple[Layer, LayerFunction, dict[str, Any], list[str]]] = []
        for layer in layers:
            if not isinstance(layer.op, Input):
                done = [name for name in dict.fromkeys(layer.inputs) if last_use[name] == layer.name]
                function = lowering.function(layer)
                if settings.compile != "off":
                    function = _named(layer.name, function)
                self._layers.append((layer, function, variables.of_layer[layer.name], done))

    def run(self, x: Tensor, one_pass: Pass) -> Tensor:
        """Return the last layer's output, or the sum of the losses."""
        values = {self._source: x}
        losses: list[Tensor] = []
        for layer, function, arrays, done in self._layers:
            x = function([values[name] for name in layer.inputs], arrays, one_pass)
            for name in done:
                del values[name]
            if isinstance(layer.op, SoftmaxCrossEntropy):
                losses.append(x)
            else:
                values[layer.name] = x
        if not losses:
            return x
        return losses[0] if len(losses) == 1 else tf.add_n(losses)

    def run_twice(self, x: Tensor, one_pass: Pass) -> Tensor:
        """Drop the activations and compute them again in backward; batch norm updates its statistics once."""
        learnt: list[str] = []

        def forward(x: Tensor) -> list[Tensor]:
            again = Pass(labels=one_pass.labels, number=one_pass.number)
            y = self.run(x, again)
            learnt[:] = again.statistics
            return [y, *map(tf.stop_gradient, again.statistics.values())]

        y, *statistics = tf.recompute_grad(forward)(x)
        one_pass.statistics.update(zip(learnt, statistics, strict=True))
        return y


def _named(layer: str, function: LayerFunction) -> LayerFunction:
    """Name operations after their layer while they are recorded. In eager steps, names would only cost time."""
    scope = scope_name(layer)

    def named(xs: Any, arrays: Any, one_pass: Pass) -> Tensor:
        with tf.name_scope(scope):
            return function(xs, arrays, one_pass)

    return named
