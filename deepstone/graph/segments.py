"""Cuts a graph into segments that pass on one array each. Checkpointing computes them again, one at a time; sharding
gathers their parameters, one segment at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from deepstone.graph.cost import layer_cost
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import SoftmaxCrossEntropy


def split(graph: Graph) -> list[list[Layer]]:
    """Return about √n segments of equal activation size, cut only where a single array is passed on."""
    return _filled(graph, [math.prod(graph.shapes[layer.name]) for layer in graph.layers])


def split_parameters(graph: Graph, *, at_least: int | None = None) -> list[list[Layer]]:
    """Return segments of at least so many parameters, as far as the graph can be cut; by default about √n segments with
    equally many."""
    return _filled(graph, [layer_cost(graph, layer).parameters for layer in graph.layers], at_least)


def _filled(graph: Graph, sizes: Sequence[int], at_least: int | None = None) -> list[list[Layer]]:
    """Close a segment at the first cut at which it is large enough."""
    cuts = possible_cuts(graph)
    count = max(1, math.isqrt(len(cuts) + 1)) if at_least is None else len(cuts) + 1
    target = sum(sizes) / count if at_least is None else at_least
    segments: list[list[Layer]] = [[]]
    filled = 0.0
    for position, layer in enumerate(graph.layers):
        segments[-1].append(layer)
        filled += sizes[position]
        if position in cuts and filled >= target and len(segments) < count:
            segments.append([])
            filled = 0.0
    return segments


def possible_cuts(graph: Graph) -> set[int]:
    """Return the positions after which only that layer's own output is still needed, before any loss."""
    position_of = {layer.name: position for position, layer in enumerate(graph.layers)}
    last_use = [
        max((position_of[taker.name] for taker in graph.consumers[layer.name]), default=position)
        for position, layer in enumerate(graph.layers)
    ]
    cuts: set[int] = set()
    needed_until = 0
    for position, layer in enumerate(graph.layers):
        if isinstance(layer.op, SoftmaxCrossEntropy):
            break
        if position > 0 and needed_until <= position and last_use[position] > position:
            cuts.add(position)
        needed_until = max(needed_until, last_use[position])
    return cuts


def chain(graph: Graph, most: int) -> list[list[Layer]]:
    """Return segments of up to `most` layers, or a few more if the graph cannot be cut earlier."""
    cuts = possible_cuts(graph)
    segments: list[list[Layer]] = [[]]
    since_cut: list[Layer] = []
    for position, layer in enumerate(graph.layers):
        since_cut.append(layer)
        if position in cuts or position == len(graph) - 1:
            if segments[-1] and len(segments[-1]) + len(since_cut) > most:
                segments.append([])
            segments[-1] += since_cut
            since_cut = []
    return segments
