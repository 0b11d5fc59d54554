"""One isolated layer, lowered as in the network: run once on given arrays, or timed repeatedly."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deepstone.backends.base import IsolatedLayer, Job, LayerResult, Timestamps
from deepstone.backends.isolated import Isolation
from deepstone.backends.jax.arrays import from_device, place, to_device, to_numpy
from deepstone.backends.jax.lower import Given, Lowering
from deepstone.backends.jax.settings import Settings
from deepstone.backends.jax.timestamps import OneAheadTimestamps
from deepstone.backends.wire_graph import WireGraph
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Flatten, Op
from deepstone.graph.weights import initial_buffers


class LayerRunner:
    """Runs single layers of one job. Identical layers on the same shapes share one compiled function."""

    def __init__(self, graph: Graph, settings: Settings, labels: Any) -> None:
        self._graph = graph
        self._settings = settings
        self._labels = place(labels, np.int32, settings)
        self._lowering = Lowering(settings=settings, training=settings.training)
        self._buffers = initial_buffers(graph)
        self._key = jax.random.key(settings.seed) if settings.dropout else None
        self._functions: dict[tuple[Op, tuple[int, ...]], Callable[..., Any]] = {}

    def run(
        self, layer: Layer, weights: Mapping[str, Any], inputs: Mapping[str, Any], upstream: Any | None
    ) -> LayerResult:
        above = None if upstream is None else self._placed(upstream)
        arguments = self._arguments(layer, weights, inputs)
        output, after, (input_gradients, gradients) = self._compiled(layer)(*arguments, above)
        return LayerResult(
            self._back(output),
            inputs={name: self._back(array) for name, array in zip(_sources(layer), input_gradients, strict=False)},
            parameters={name: from_device(layer.op, name, array, self._settings) for name, array in gradients.items()},
            buffers={name: to_numpy(array) for name, array in after.items()},
        )

    def isolated(self, job: Job, layer: Layer) -> IsolatedLayer:
        """Return the programs that time the layer. Backward runs from the results of one forward, as in a step."""
        settings, turns = self._settings, Turns(self._settings)
        isolation = Isolation(WireGraph(job.graph), layer.name, job.request, len(job.labels))
        function, sources = self._forward(layer.op, _taken(layer)), _sources(layer)

        @cache
        def arguments() -> tuple[Any, ...]:
            return self._arguments(layer, job.weights.get(layer.name, {}), isolation.inputs())

        def forward() -> Callable[[], None]:
            return turns.program(function, *arguments())

        def backward(wanted: Sequence[str], trained: bool) -> Callable[[], None]:
            recorded = _recorded(function, [sources.index(name) for name in wanted], with_weights=trained)
            output, back = compiled(recorded, settings, *arguments())(*arguments())
            upstream = place(settings.order.images(isolation.upstream()), output.dtype, settings)
            return turns.program(lambda back, upstream: back(upstream), back, upstream)

        return IsolatedLayer(isolation.programs(forward, backward, moves_to_flatten=self._moves(layer)), turns)

    def _arguments(self, layer: Layer, weights: Mapping[str, Any], inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return inputs (one for each source layer), parameters, buffers, labels and key, on the device."""
        settings, op = self._settings, layer.op
        buffers = self._buffers.get(layer.name, {})
        return (
            [self._placed(inputs[name]) for name in _sources(layer)],
            {name: to_device(op, name, array, settings) for name, array in weights.items()},
            {name: to_device(op, name, array, settings) for name, array in buffers.items()},
            self._labels,
            self._key,
        )

    def _placed(self, array: Any) -> Any:
        """Convert a layer's output, or its gradient, from the graph's order."""
        return place(self._settings.order.images(array), self._settings.activations, self._settings)

    def _back(self, array: Any) -> Any:
        return np.array(self._settings.order.images_back(to_numpy(array)), order="C")

    def _moves(self, layer: Layer) -> bool:
        """Whether flattening moves channels to the front."""
        if not isinstance(layer.op, Flatten) or not self._settings.order.is_last:
            return False
        channels, height, width = self._graph.input_shapes(layer)[0]
        return channels > 1 and height * width > 1

    def _forward(self, op: Op, taken: tuple[int, ...]) -> Callable[..., Any]:
        """Return the layer as a pure function from its arguments to its output and its new buffers."""

        def forward(given: Any, parameters: Any, buffers: Any, labels: Any, key: Any) -> Any:
            inputs = [given[position] for position in taken]
            return self._lowering.apply(
                op, Given(inputs=inputs, parameters=parameters, buffers=buffers, labels=labels, key=key)
            )

        return forward

    def _compiled(self, layer: Layer) -> Callable[..., Any]:
        """Return the function, compiled once for every operation and pattern of inputs; JAX distinguishes shapes."""
        alike = layer.op, _taken(layer)
        if alike not in self._functions:
            self._functions[alike] = jax.jit(_with_gradients(self._forward(*alike)))
        return self._functions[alike]


def _sources(layer: Layer) -> list[str]:
    """Return the layers that it reads, each once."""
    return list(dict.fromkeys(layer.inputs))


def _taken(layer: Layer) -> tuple[int, ...]:
    sources = _sources(layer)
    return tuple(sources.index(name) for name in layer.inputs)


def _with_gradients(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(given: Any, parameters: Any, buffers: Any, labels: Any, key: Any, upstream: Any) -> Any:
        if upstream is None:
            return *forward(given, parameters, buffers, labels, key), ([], {})
        output, backward, after = jax.vjp(
            lambda given, parameters: forward(given, parameters, buffers, labels, key), given, parameters, has_aux=True
        )
        return output, after, backward(jnp.asarray(upstream, output.dtype))

    return run


def _recorded(function: Callable[..., Any], wanted: Sequence[int], *, with_weights: bool) -> Callable[..., Any]:
    """Run forward; return the function for the gradients of the inputs at these positions and of the parameters."""

    def record(given: Any, parameters: Any, buffers: Any, labels: Any, key: Any) -> Any:
        def forward(chosen: Any, trained: Any) -> Any:
            inputs = list(given)
            for position, array in zip(wanted, chosen, strict=True):
                inputs[position] = array
            return function(inputs, trained if with_weights else parameters, buffers, labels, key)

        output, back, _ = jax.vjp(
            forward, [given[position] for position in wanted], parameters if with_weights else {}, has_aux=True
        )
        return output, back

    return record


class Turns:
    """Runs programs one after the other and reads the clock.

    A run of an isolated layer uses nothing from the run before, and XLA's CPU client would run several at once. So each
    run takes a number that the run before returns, and waits for it.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._turn = place(0, np.int32, settings)
        self._timestamps: OneAheadTimestamps | None = None

    def program(self, function: Callable[..., Any], *arguments: Any) -> Callable[[], None]:
        def in_turn(turn: Any, *arguments: Any) -> Any:
            return turn + 1, function(*arguments)

        run = compiled(in_turn, self._settings, self._turn, *arguments)

        def step() -> None:
            self._turn, _ = run(self._turn, *arguments)

        return step

    def synchronize(self) -> None:
        if self._timestamps is not None:
            self._timestamps.finish()
        self._turn.block_until_ready()

    def timestamps(self, count: int) -> Timestamps:
        self._timestamps = OneAheadTimestamps(count, self.clock, lambda: self._turn)
        return self._timestamps

    def clock(self) -> float:
        return time.perf_counter()


def compiled(function: Callable[..., Any], settings: Settings, *arguments: Any) -> Any:
    return jax.jit(function).lower(*arguments).compile(compiler_options=dict(settings.compiler_options))
