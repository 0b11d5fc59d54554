"""The analytic memory of a step, layer by layer: weights, gradients, optimizer state, activations."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass

from deepstone.graph.cost import FP32_BYTES, layer_cost
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import (
    Add,
    BatchNorm,
    Clip,
    Conv,
    Dense,
    Dropout,
    Flatten,
    HardSigmoid,
    HardSwish,
    Lrn,
    MaxPool,
    Multiply,
    Relu,
    Sigmoid,
    Silu,
    SoftmaxCrossEntropy,
    Tanh,
)
from deepstone.graph.segments import split

_READ_INPUTS = (
    Conv,
    Dense,
    BatchNorm,
    MaxPool,
    Lrn,
    SoftmaxCrossEntropy,
    Silu,
    HardSigmoid,
    HardSwish,
    Multiply,
)
_READ_OUTPUT = (Relu, Clip, Sigmoid, Tanh, Lrn)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Need:
    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes + self.activations_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerMemory(_Need):
    """The part of one layer in the analytic need of a step; a shared array counts in the layer that made it."""

    name: str
    op: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StepMemory(_Need):
    """The analytic need of a step, and of each layer in the graph's order."""

    layers: tuple[LayerMemory, ...]


def step_memory(
    graph: Graph,
    *,
    batch: int,
    phase: str,
    value_bytes: int = FP32_BYTES,
    master_bytes: int = 0,
    optimizer_slots: int = 1,
    checkpointing: bool = False,
) -> StepMemory:
    """Return the analytic need of a step: parameters, their gradients, optimizer state, and activations.

    Activations are those kept for backward; in the forward phase, the largest set that is live at once. Not counted:
    workspace, running statistics, and the gradients of activations, which reuse the memory that backward frees.
    `value_bytes` is the size of one activation or weight, `master_bytes` that of a master copy of each weight (mixed
    precision), `optimizer_slots` the number of state arrays per weight. With `checkpointing`, backward needs the arrays
    between segments and those that it reads inside the largest segment.
    """
    state_bytes = master_bytes or value_bytes
    gradient_bytes = 0 if phase == "forward" else state_bytes
    slots = optimizer_slots if phase == "train" else 0
    live = largest_live_set(graph) if phase == "forward" else _saved_for_backward(graph, checkpointing)
    layers: list[LayerMemory] = []
    for layer in graph.layers:
        parameters = layer_cost(graph, layer).parameters
        values = math.prod(graph.shapes[layer.name]) if layer.name in live else 0
        layers.append(
            LayerMemory(
                name=layer.name,
                op=layer.op.kind,
                parameters_bytes=parameters * (value_bytes + master_bytes),
                gradients_bytes=parameters * gradient_bytes,
                optimizer_bytes=parameters * slots * state_bytes,
                activations_bytes=batch * values * value_bytes,
            )
        )
    return StepMemory(
        layers=tuple(layers),
        parameters_bytes=sum(layer.parameters_bytes for layer in layers),
        gradients_bytes=sum(layer.gradients_bytes for layer in layers),
        optimizer_bytes=sum(layer.optimizer_bytes for layer in layers),
        activations_bytes=sum(layer.activations_bytes for layer in layers),
    )


def array_owners(graph: Graph) -> dict[str, str]:
    """Return, for each layer, the layer that allocated its output: itself, unless no new array is needed.

    Flatten, and dropout when off, pass on their input's array. A ReLU or clip that is the only reader of a convolution,
    dense, batch norm or add layer overwrites that layer's output, which no gradient reads.
    """
    owners: dict[str, str] = {}
    for layer in graph.layers:
        shares = isinstance(layer.op, (Flatten, Dropout)) or _overwrites_input(graph, layer)
        owners[layer.name] = owners[layer.inputs[0]] if shares else layer.name
    return owners


def _overwrites_input(graph: Graph, layer: Layer) -> bool:
    if not isinstance(layer.op, (Relu, Clip)):
        return False
    before = graph.layer(layer.inputs[0])
    return isinstance(before.op, (Conv, Dense, BatchNorm, Add)) and len(graph.consumers[before.name]) == 1


def kept_for_backward(graph: Graph) -> list[Layer]:
    """Return the layers that allocated the arrays kept for backward; each array once, even if several layers read it.

    The backward pass of a convolution, dense, batch norm, max pool, LRN, loss or product layer reads its input, as do
    activations whose slope does not follow from their output; ReLU, clip, sigmoid, tanh and LRN read their output. The
    gradients of average pools, additions, joins and reshapes depend only on shapes.
    """
    read: set[str] = set()
    for layer in graph.layers:
        if isinstance(layer.op, _READ_INPUTS):
            read.update(layer.inputs)
        if isinstance(layer.op, _READ_OUTPUT):
            read.add(layer.name)
    owners = array_owners(graph)
    kept = {owners[name] for name in read}
    return [layer for layer in graph.layers if layer.name in kept]


def _saved_for_backward(graph: Graph, checkpointing: bool) -> Set[str]:
    kept = {layer.name for layer in kept_for_backward(graph)}
    if not checkpointing:
        return kept
    owners = array_owners(graph)
    segments = split(graph)
    between = {owners[segment[-1].name] for segment in segments[:-1]} | {graph.input.name}
    inside = [{layer.name for layer in segment if layer.name in kept} - between for segment in segments]
    return between | max(inside, key=lambda names: sum(math.prod(graph.shapes[name]) for name in names))


def largest_live_set(graph: Graph) -> Set[str]:
    """Return the layers of the largest set of arrays that are live at once, if each is freed after its last use."""
    owners = array_owners(graph)
    last_use = {owners[name]: layer.name for layer in graph.layers for name in (*layer.inputs, layer.name)}
    alive: set[str] = set()
    values, most_values, most = 0, -1, frozenset[str]()
    for layer in graph.layers:
        if owners[layer.name] == layer.name:
            alive.add(layer.name)
            values += math.prod(graph.shapes[layer.name])
        if values > most_values:
            most_values, most = values, frozenset(alive)
        for name in {owners[name] for name in (*layer.inputs, layer.name)}:
            if last_use[name] == layer.name:
                alive.remove(name)
                values -= math.prod(graph.shapes[name])
    return most
