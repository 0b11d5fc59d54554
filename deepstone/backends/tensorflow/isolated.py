"""One isolated layer, lowered as in the network: run once on given arrays, or timed repeatedly.

TensorFlow keeps the values for backward inside a program, so backward cannot run without forward: the time of
`forward` has to be subtracted from those of these programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from deepstone.backends.base import Job, LayerResult
from deepstone.backends.isolated import Isolation
from deepstone.backends.tensorflow.arrays import Arrangement, initial_buffers, to_numpy
from deepstone.backends.tensorflow.lower import Lowering, Pass
from deepstone.backends.tensorflow.settings import Settings
from deepstone.backends.wire_graph import WireGraph
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Dropout, Flatten, SoftmaxCrossEntropy

Tensor: TypeAlias = Any
Tensors: TypeAlias = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Wanted:
    """The requested gradients: of the inputs at these positions, of the parameters, or of both."""

    inputs: tuple[int, ...]
    parameters: bool


class LayerRunner:
    """Runs single layers of one job. Identical layers on the same shapes share one recorded program."""

    def __init__(self, graph: Graph, arrangement: Arrangement, settings: Settings, labels: Any) -> None:
        self._graph = graph
        self._arrangement = arrangement
        self._settings = settings
        self._lowering = Lowering(graph, arrangement, settings)
        self._labels = tf.constant(labels)
        self._programs: dict[Any, Callable[..., Any]] = {}

    def run(
        self, layer: Layer, weights: Mapping[str, Any], inputs: Mapping[str, Any], upstream: Any | None
    ) -> LayerResult:
        arrange = self._arrangement
        arguments = self._arguments(layer, weights, inputs, upstream)
        wanted = _Wanted(inputs=tuple(range(len(inputs))), parameters=True) if upstream is not None else None
        program = self._program(layer, list(inputs), arguments, wanted)
        y, input_gradients, parameter_gradients, buffers = program(*arguments)
        return LayerResult(
            arrange.value_of_graph(layer.name, to_numpy(y)),
            inputs={
                name: arrange.value_of_graph(name, to_numpy(gradient))
                for name, gradient in zip(inputs, input_gradients, strict=False)
            },
            parameters={
                name: arrange.parameter_of_graph(layer, name, to_numpy(gradient))
                for name, gradient in parameter_gradients.items()
            },
            buffers={name: to_numpy(value) for name, value in buffers.items()},
        )

    def programs(self, job: Job, layer: Layer) -> dict[str, Callable[[], None]]:
        """Return the programs that time the layer, named as in `IsolatedLayer`."""
        isolation = Isolation(WireGraph(job.graph), layer.name, job.request, self._settings.batch)
        weights, sources = job.weights.get(layer.name, {}), isolation.layer.sources
        sampled = cache(isolation.inputs)

        def ready(wanted: _Wanted | None, upstream: Any | None) -> Callable[[], None]:
            arguments = self._arguments(layer, weights, sampled(), upstream)
            program = self._program(layer, sources, arguments, wanted)

            def run() -> None:
                program(*arguments)

            return run

        def backward(wanted: Sequence[str], trained: bool) -> Callable[[], None]:
            positions = tuple(sources.index(name) for name in wanted)
            return ready(_Wanted(inputs=positions, parameters=trained), isolation.upstream())

        moves = isinstance(layer.op, Flatten) and self._arrangement.moves(layer)
        return isolation.programs(lambda: ready(None, None), backward, with_forward=True, moves_to_flatten=moves)

    def _arguments(
        self, layer: Layer, weights: Mapping[str, Any], inputs: Mapping[str, Any], upstream: Any | None
    ) -> list[Any]:
        """Return the arguments of the programs that `_program` makes, on the device."""
        arrange, graph = self._arrangement, self._graph
        given = [self._tensor(arrange.value(name, array), self._settings.activations) for name, array in inputs.items()]
        parameters = {
            name: self._tensor(arrange.parameter(layer, name, weights[name]), self._settings.weights)
            for name in graph.parameters(layer)
        }
        buffers = {name: tf.constant(array) for name, array in initial_buffers(graph, layer, self._settings).items()}
        arguments: list[Any] = [given, parameters, buffers]
        if upstream is not None:
            arguments.append(self._tensor(arrange.value(layer.name, upstream), self._type_of_output(layer)))
        return arguments

    def _tensor(self, array: Any, dtype: Any) -> Tensor:
        return tf.cast(np.ascontiguousarray(array), dtype)

    def _type_of_output(self, layer: Layer) -> Any:
        """Return the number type of the output; a loss is never narrow."""
        return (
            tf.float32
            if self._settings.narrow and isinstance(layer.op, SoftmaxCrossEntropy)
            else self._settings.activations
        )

    def _program(
        self, layer: Layer, sources: list[str], arguments: list[Any], wanted: _Wanted | None
    ) -> Callable[..., Any]:
        """Return the program, recorded once for an operation, the pattern of its inputs, their shapes, and the
        requested gradients."""
        pattern = tuple(sources.index(name) for name in layer.inputs)
        shapes = tuple(tuple(tensor.shape) for tensor in arguments[0])
        key = (layer.op, pattern, shapes, wanted, self._place(layer))
        if key not in self._programs:
            function = self._function(layer, pattern, wanted)
            if self._settings.compile != "off":
                function = tf.function(function, jit_compile=self._settings.xla, autograph=False)
                function = function.get_concrete_function(*arguments)
            self._programs[key] = function
        return self._programs[key]

    def _place(self, layer: Layer) -> object:
        """Return what else a function depends on: dropout on the layer's name, flatten on its readers."""
        if isinstance(layer.op, Dropout):
            return layer.name
        return isinstance(layer.op, Flatten) and self._arrangement.moves(layer)

    def _function(self, layer: Layer, pattern: tuple[int, ...], wanted: _Wanted | None) -> Callable[..., Any]:
        lowered = self._lowering.function(layer)
        labels = self._labels

        def forward(given: list[Tensor], parameters: Tensors, buffers: Tensors) -> tuple[Tensor, Tensors]:
            one_pass = Pass(labels=labels, number=tf.constant(1, tf.int64))
            y = lowered([given[position] for position in pattern], {**parameters, **buffers}, one_pass)
            learnt = {name: one_pass.statistics.get(f"{layer.name}/{name}", value) for name, value in buffers.items()}
            return y, learnt

        def only_forward(given: list[Tensor], parameters: Tensors, buffers: Tensors) -> Any:
            y, learnt = forward(given, parameters, buffers)
            return y, [], {}, learnt

        if wanted is None:
            return only_forward

        def with_gradients(given: list[Tensor], parameters: Tensors, buffers: Tensors, upstream: Tensor) -> Any:
            sources = [[given[position] for position in wanted.inputs], parameters if wanted.parameters else {}]
            with tf.GradientTape() as tape:
                tape.watch(sources)
                y, learnt = forward(given, parameters, buffers)
            gradients: Any = tape.gradient(y, sources, output_gradients=upstream)
            return y, *gradients, learnt

        return with_gradients
