"""Whom the host's time belongs to in eager steps: ranges around layers forward, autograd nodes backward.

An autograd node and the forward operator that made it carry the same sequence number, so the node's layer is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from deepstone.backends.torch.events import Event
from deepstone.backends.torch.nesting import Interval, innermost
from deepstone.backends.torch.ranges import LAYER_RANGE

Layers: TypeAlias = Mapping[str, int]  # whom something worked for, and how much for each

_AUTOGRAD_NODE = "autograd::engine::evaluate_function: "
_ACCUMULATION = _AUTOGRAD_NODE + "torch::autograd::AccumulateGrad"


def eager_ownership(events: Sequence[Event]) -> list[Interval[Layers]]:
    """Intervals of the host's time with the layer that they belong to; they may lie inside each other."""
    forward = [
        Interval(start_s=event.start_s, end_s=event.end_s, label=event.name.removeprefix(LAYER_RANGE))
        for event in events
        if event.kind == "range" and event.name.startswith(LAYER_RANGE)
    ]
    operators = [event for event in events if event.kind == "operator"]
    # A number is also shown by operators that run before its node is made and make none; the last one made it.
    makers = [event for event in operators if event.sequence >= 0 and not event.name.startswith(_AUTOGRAD_NODE)]
    layers = innermost(forward, [event.start_s for event in makers])
    layer_of_sequence = {
        maker.sequence: layer for maker, layer in zip(makers, layers, strict=True) if layer is not None
    }
    backward = list(_backward(operators, layer_of_sequence))
    return [
        Interval(start_s=interval.start_s, end_s=interval.end_s, label={interval.label: 1})
        for interval in [*forward, *backward]
    ]


def _backward(operators: Sequence[Event], layer_of_sequence: Mapping[int, str]) -> Iterator[Interval[str]]:
    layer: str | None = None
    for node in operators:
        if not node.name.startswith(_AUTOGRAD_NODE):
            continue
        if node.name != _ACCUMULATION:  # has no number, but runs right after the node that gave the gradient
            layer = layer_of_sequence.get(node.sequence)
        if layer is not None:
            yield Interval(start_s=node.start_s, end_s=node.end_s, label=layer)
