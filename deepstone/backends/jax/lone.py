"""One layer by itself, again and again: programs that are timed alone, on arrays of the layer's real shapes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from deepstone.backends.base import LoneLayer, Marks
from deepstone.backends.jax.layer import Arrays, LayerRunner, inputs_of
from deepstone.backends.jax.marks import OneAheadMarks
from deepstone.backends.jax.settings import Settings
from deepstone.backends.jax.values import place
from deepstone.backends.lone_arrays import drawn_inputs, drawn_upstream, sources_with_gradient
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Conv, Dense, Dropout, Flatten, Input


class Turns:
    """Runs programs one after the other, and tells when they ran.

    Nothing that a lone layer computes is used by its next run, and XLA's CPU client would run several at once. So each
    run takes a number that the one before it gives, and waits for that.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._turn = place(0, np.int32, settings)
        self._marks: OneAheadMarks | None = None

    def program(self, function: Callable[..., Any], *arguments: Any) -> Callable[[], None]:
        def in_turn(turn: Any, *arguments: Any) -> Any:
            return turn + 1, function(*arguments)

        run = compiled(in_turn, self._settings, self._turn, *arguments)

        def step() -> None:
            self._turn, _ = run(self._turn, *arguments)

        return step

    def synchronize(self) -> None:
        if self._marks is not None:
            self._marks.finish()
        self._turn.block_until_ready()

    def marks(self, count: int) -> Marks:
        self._marks = OneAheadMarks(count, self.clock, lambda: self._turn)
        return self._marks

    def clock(self) -> float:
        return time.perf_counter()


def compiled(function: Callable[..., Any], settings: Settings, *arguments: Any) -> Any:
    return jax.jit(function).lower(*arguments).compile(compiler_options=dict(settings.compiler_options))


def lone_layer(
    graph: Graph, layer: Layer, weights: Mapping[str, Any], runner: LayerRunner, settings: Settings
) -> LoneLayer:
    """Backward runs from what one forward kept, as it does in a step."""
    turns = Turns(settings)
    if not _does_work(graph, layer, settings):
        return LoneLayer({}, turns)
    batch = len(runner.labels)
    arrays = runner.arrays(layer, weights, drawn_inputs(graph, layer, batch))
    lone = _Lone(layer, arrays, runner, settings, turns, drawn_upstream(graph, layer, batch))
    programs = {"forward": lone.forward()}
    if settings.training:
        sources = inputs_of(layer)
        wanted = [sources.index(name) for name in sources_with_gradient(graph, layer, input_grad=settings.input_grad)]
        if wanted or arrays.held:
            programs["backward"] = lone.backward(wanted, with_weights=True)
        if isinstance(layer.op, Conv | Dense):
            programs["weight"] = lone.backward([], with_weights=True)
            if wanted:
                programs["data"] = lone.backward(wanted, with_weights=False)
    return LoneLayer(programs, turns)


def _does_work(graph: Graph, layer: Layer, settings: Settings) -> bool:
    match layer.op:
        case Input():
            return False
        case Dropout():
            return settings.dropout
        case Flatten():  # moves channels to the front, or nothing at all
            channels, height, width = graph.input_shapes(layer)[0]
            return settings.order.channel_axis == 3 and channels > 1 and height * width > 1
        case _:
            return True


class _Lone:
    """The programs of one layer."""

    def __init__(
        self, layer: Layer, arrays: Arrays, runner: LayerRunner, settings: Settings, turns: Turns, upstream: Any
    ) -> None:
        self._function = runner.function(layer)
        self._arguments = (arrays.given, arrays.held, arrays.kept, runner.labels, runner.key)
        self._settings = settings
        self._turns = turns
        self._upstream = upstream

    def forward(self) -> Callable[[], None]:
        return self._turns.program(self._function, *self._arguments)

    def backward(self, wanted: Sequence[int], *, with_weights: bool) -> Callable[[], None]:
        """The gradients of the inputs at these positions, and of the parameters."""

        def record(given: Any, held: Any, kept: Any, labels: Any, key: Any) -> Any:
            def forward(chosen: Any, trained: Any) -> Any:
                inputs = list(given)
                for position, array in zip(wanted, chosen, strict=True):
                    inputs[position] = array
                return self._function(inputs, trained if with_weights else held, kept, labels, key)

            output, back, _ = jax.vjp(
                forward, [given[position] for position in wanted], held if with_weights else {}, has_aux=True
            )
            return output, back

        output, back = compiled(record, self._settings, *self._arguments)(*self._arguments)
        upstream = place(self._settings.order.images(self._upstream), output.dtype, self._settings)
        return self._turns.program(lambda back, upstream: back(upstream), back, upstream)
