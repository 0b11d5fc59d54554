"""Runs lowered layers in turn, for frameworks that compute when they are called. In the syntax of Python 3.6.

Functions over numbered slots: what a hand-written forward does, one call after the other, and like there, each
activation is let go after its last use.
"""

from typing import Any, Callable, List, Tuple

from deepstone.backends.legacy.shared import LOSS, WireGraph, WireLayer

_Op = Callable[..., Any]


class InTurn:
    """The network as a function of images and labels. `lower` gives the function that takes a layer's inputs (and the
    labels if it is a loss) to its output."""

    def __init__(self, graph: WireGraph, lower: Callable[[WireLayer], _Op]) -> None:
        numbers = {layer.name: number for number, layer in enumerate(graph.layers)}
        last = {name: layer.name for layer in graph.layers for name in layer.inputs}
        self._plan: List[Tuple[_Op, List[int], int, List[int]]] = []
        self._losses: List[Tuple[_Op, int]] = []
        self._count = len(graph.layers)
        self._input = numbers[graph.input.name]
        for layer in graph.layers:
            if layer.op == LOSS:
                self._losses.append((lower(layer), numbers[layer.inputs[0]]))
            elif layer.op != "input":
                done = [numbers[name] for name in layer.sources if last[name] == layer.name]
                inputs = [numbers[name] for name in layer.inputs]
                self._plan.append((lower(layer), inputs, numbers[layer.name], done))

    def __call__(self, images: Any, labels: Any) -> Any:
        slots: List[Any] = [None] * self._count
        slots[self._input] = images
        for op, inputs, output, done in self._plan:
            slots[output] = op(*[slots[number] for number in inputs])
            for number in done:
                slots[number] = None
        total = None
        for loss, scores in self._losses:
            one = loss(slots[scores], labels)
            total = one if total is None else total + one
        return total
