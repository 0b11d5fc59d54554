"""A part of the graph that takes one array and gives one, as a pure function without names: like parts are equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from deepstone.backends.jax.lower import Given, Lowering
from deepstone.backends.scopes import scope_name
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Input, Op, SoftmaxCrossEntropy


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One layer: what it does, and which values it takes; 0 is what the stretch is given, then comes one per node."""

    op: Op
    inputs: tuple[int, ...]
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    scope: str = field(
        compare=False
    )  # what its operations are called by; nodes that do the same are equal all the same


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """Parameters and running statistics are lists in the order of the graph: flat, so that a call costs little."""

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
        """The last output, or the sum of the losses if there are any; and the running statistics afterwards."""
        values = [x]
        after: list[Any] = []
        losses: list[Any] = []
        held, kept = iter(parameters), iter(buffers)
        for number, node in enumerate(self.nodes):
            with jax.named_scope(node.scope):
                given = Given(
                    inputs=[values[position] for position in node.inputs],
                    held=_named(node.parameters, held),
                    kept=_named(node.buffers, kept),
                    labels=labels,
                    key=None if key is None else jax.random.fold_in(key, number),
                )
                output, changed = lowering.apply(node.op, given)
            values.append(output)
            after += [changed[name] for name in node.buffers]
            if isinstance(node.op, SoftmaxCrossEntropy):
                losses.append(output)
        return (sum(losses[1:], start=losses[0]) if losses else values[-1]), after


def stretch_of(graph: Graph, layers: Iterable[Layer], source: str) -> Stretch:
    """`source` is the layer whose output the stretch is given."""
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
    return Stretch(nodes=tuple(nodes))


def stretches_of(graph: Graph, parts: Iterable[Sequence[Layer]]) -> list[Stretch]:
    """One after the other, each fed by the one before it."""
    stretches: list[Stretch] = []
    source = graph.input.name
    for layers in parts:
        stretches.append(stretch_of(graph, layers, source))
        source = layers[-1].name
    return stretches


def _named(names: Sequence[str], arrays: Iterator[Any]) -> dict[str, Any]:
    return {name: next(arrays) for name in names}
