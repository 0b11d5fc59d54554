"""One layer by itself, again and again: programs that are timed alone, on arrays of the layer's real shapes.

TensorFlow keeps what backward needs inside a program, so backward cannot run without forward: those who time these
programs take the time of `forward` off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from deepstone.backends.lone_arrays import drawn_inputs, drawn_upstream, sources_with_gradient
from deepstone.backends.tensorflow.arrangement import Arrangement
from deepstone.backends.tensorflow.layer import LayerRunner, Wanted
from deepstone.backends.tensorflow.settings import Settings
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Conv, Dense, Dropout, Flatten, Input


def lone_programs(
    graph: Graph,
    layer: Layer,
    weights: Mapping[str, Any],
    runner: LayerRunner,
    arrangement: Arrangement,
    settings: Settings,
) -> dict[str, Callable[[], None]]:
    if not _does_work(layer, arrangement, settings):
        return {}
    inputs = drawn_inputs(graph, layer, settings.batch)
    sources = list(inputs)

    def ready(wanted: Wanted | None, upstream: Any | None) -> Callable[[], None]:
        arguments = runner.arguments(layer, weights, inputs, upstream)
        program = runner.program(layer, sources, arguments, wanted)
        return lambda: _run(program, arguments)

    programs = {"forward": ready(None, None)}
    if not settings.training:
        return programs
    upstream = drawn_upstream(graph, layer, settings.batch)
    trained = bool(graph.parameters(layer))
    with_gradient = sources_with_gradient(graph, layer, input_grad=settings.input_grad)
    positions = tuple(sources.index(name) for name in with_gradient)
    if positions or trained:
        programs["forward+backward"] = ready(Wanted(inputs=positions, parameters=trained), upstream)
    if isinstance(layer.op, Conv | Dense):
        programs["forward+weight"] = ready(Wanted(inputs=(), parameters=True), upstream)
        if positions:
            programs["forward+data"] = ready(Wanted(inputs=positions, parameters=False), upstream)
    return programs


def _run(program: Callable[..., Any], arguments: list[Any]) -> None:
    program(*arguments)


def _does_work(layer: Layer, arrangement: Arrangement, settings: Settings) -> bool:
    match layer.op:
        case Input():
            return False
        case Dropout():
            return settings.dropout
        case Flatten():  # moves channels to the front, or nothing at all
            return arrangement.moves(layer)
        case _:
            return True
