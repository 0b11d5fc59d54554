"""What a step keeps in memory by definition, layer by layer: weights, gradients, optimizer state, activations."""

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
    """What one layer adds to the analytic need of a step; an array that layers share counts where it was made."""

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
    """The analytic need of a step: parameters, their gradients, optimizer state, and activations.

    Activations are those kept for backward; in the forward phase, the most alive at once. Not counted: workspace,
    running statistics, and the gradients of activations, which take the place of activations as backward frees them.
    `value_bytes` is the size of one activation or weight, `master_bytes` that of a second copy of each weight if one
    is kept (mixed precision), `optimizer_slots` the arrays the optimizer keeps per weight. With `checkpointing`
    backward has the arrays between segments, and all that it reads again in one segment: the largest.
    """
    state_bytes = master_bytes or value_bytes
    gradient_bytes = 0 if phase == "forward" else state_bytes
    slots = optimizer_slots if phase == "train" else 0
    held = most_alive(graph) if phase == "forward" else _held_for_backward(graph, checkpointing)
    layers: list[LayerMemory] = []
    for layer in graph.layers:
        parameters = layer_cost(graph, layer).parameters
        values = math.prod(graph.shapes[layer.name]) if layer.name in held else 0
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
    """For each layer, the layer that made the array its output lies in: itself, unless no new array is needed.

    Flatten, and dropout when off, hand on their input's array. A ReLU or clip that alone follows a convolution,
    dense, batch norm or add layer writes over that layer's output, which no gradient reads.
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
    """The layers that made the arrays backward reads again; each array once, however many layers read it.

    A convolution, dense, batch norm, max pool, LRN or loss layer reads its input again, as do a product and the
    activations whose slope their output does not tell; ReLU, clip, sigmoid, tanh and LRN read their output. The
    gradients of average pools, additions, joins and reshapes depend on shapes alone.
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


def _held_for_backward(graph: Graph, checkpointing: bool) -> Set[str]:
    kept = {layer.name for layer in kept_for_backward(graph)}
    if not checkpointing:
        return kept
    owners = array_owners(graph)
    segments = split(graph)
    between = {owners[segment[-1].name] for segment in segments[:-1]} | {graph.input.name}
    inside = [{layer.name for layer in segment if layer.name in kept} - between for segment in segments]
    return between | max(inside, key=lambda names: sum(math.prod(graph.shapes[name]) for name in names))


def most_alive(graph: Graph) -> Set[str]:
    """The layers whose arrays are alive together when most values are, each array being freed after its last use."""
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
