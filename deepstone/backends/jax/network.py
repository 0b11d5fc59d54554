"""The graph as pure functions of weights, running statistics and a batch: the whole network, and segments of it.

A segment maps one array to one array. Its function has no names, so identical segments compare equal and share one
compiled program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import jax

from deepstone.backends.jax.lower import Given, Lowering
from deepstone.backends.jax.settings import Settings
from deepstone.backends.owners import scope_name
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Input, Op, SoftmaxCrossEntropy
from deepstone.graph.segments import split


class Network:
    """The network: one segment, or with checkpointing several. All but the last are recomputed in backward."""

    def __init__(self, graph: Graph, settings: Settings) -> None:
        self._settings = settings
        self._input_scope = scope_name(graph.input.name)
        self._lowering = Lowering(settings=settings, training=settings.training)
        self._segments = segments_of(graph, split(graph) if settings.checkpointing else [graph.layers])

    def loss(
        self, parameters: Sequence[Any], buffers: Sequence[Any], samples: Any, labels: Any, key: Any | None
    ) -> tuple[Any, list[Any]]:
        """Return the loss and the new running statistics."""
        with jax.named_scope(self._input_scope):
            x = samples.astype(self._settings.activations)
        own_parameters, own_buffers = iter(parameters), iter(buffers)
        after: list[Any] = []
        for number, segment in enumerate(self._segments):
            run = partial(segment.run, self._lowering)
            if number < len(self._segments) - 1:  # the last one's activations are needed at once
                run = jax.checkpoint(run)
            own = None if key is None else jax.random.fold_in(key, number)
            x, changed = run(
                x,
                list(islice(own_parameters, segment.parameters)),
                list(islice(own_buffers, segment.buffers)),
                labels,
                own,
            )
            after += changed
        return x, after


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One layer: its operation and the indices of its inputs. Index 0 is the input of the segment, then one per
    node."""

    op: Op
    inputs: tuple[int, ...]
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    scope: str = field(compare=False)  # names its operations; identical nodes are equal even if their names differ


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A segment. Parameters and running statistics are flat lists in the order of the graph, so that a call costs
    little."""

    nodes: tuple[Node, ...]

    @property
    def parameters(self) -> int:
        return sum(len(node.parameters) for node in self.nodes)

    @property
    def buffers(self) -> int:
        return sum(len(node.buffers) for node in self.nodes)

    def run(
        self,
        lowering: Lowering,
        x: Any,
        parameters: Sequence[Any],
        buffers: Sequence[Any],
        labels: Any,
        key: Any | None,
    ) -> tuple[Any, list[Any]]:
        """Return the last output, or the sum of the losses if there are any, and the new running statistics."""
        values = [x]
        after: list[Any] = []
        losses: list[Any] = []
        own_parameters, own_buffers = iter(parameters), iter(buffers)
        for number, node in enumerate(self.nodes):
            with jax.named_scope(node.scope):
                given = Given(
                    inputs=[values[position] for position in node.inputs],
                    parameters=_named(node.parameters, own_parameters),
                    buffers=_named(node.buffers, own_buffers),
                    labels=labels,
                    key=None if key is None else jax.random.fold_in(key, number),
                )
                output, changed = lowering.apply(node.op, given)
            values.append(output)
            after += [changed[name] for name in node.buffers]
            if isinstance(node.op, SoftmaxCrossEntropy):
                losses.append(output)
        return (sum(losses[1:], start=losses[0]) if losses else values[-1]), after


def segment_of(graph: Graph, layers: Iterable[Layer], source: str) -> Segment:
    """Make a segment. `source` is the layer whose output is its input."""
    position = {source: 0}
    nodes: list[Node] = []
    for layer in layers:
        if isinstance(layer.op, Input):
            continue
        nodes.append(
            Node(
                op=layer.op,
                inputs=tuple(position[name] for name in layer.inputs),
                parameters=tuple(graph.parameters(layer)),
                buffers=tuple(graph.buffers(layer)),
                scope=scope_name(layer.name),
            )
        )
        position[layer.name] = len(nodes)
    return Segment(nodes=tuple(nodes))


def segments_of(graph: Graph, parts: Iterable[Sequence[Layer]]) -> list[Segment]:
    """Make consecutive segments; each reads the output of the one before."""
    segments: list[Segment] = []
    source = graph.input.name
    for layers in parts:
        segments.append(segment_of(graph, layers, source))
        source = layers[-1].name
    return segments


def _named(names: Sequence[str], arrays: Iterator[Any]) -> dict[str, Any]:
    return {name: next(arrays) for name in names}
