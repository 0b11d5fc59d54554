"""What a layer costs by definition: FLOPs, bytes, and the memory a step needs. The same for every framework."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import (
    Add,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Flatten,
    Lrn,
    MaxPool,
    Op,
    Relu,
    Shape,
    SoftmaxCrossEntropy,
)

FP32_BYTES = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCost:
    """Per sample; a multiply-add is 2 FLOPs, and only convolution and dense layers count."""

    parameters: int
    forward_flops: int
    data_gradient_flops: int
    weight_gradient_flops: int
    weight_bytes: int
    activation_bytes: int

    @property
    def backward_flops(self) -> int:
        return self.data_gradient_flops + self.weight_gradient_flops


def layer_cost(graph: Graph, layer: Layer, *, input_grad: bool = False) -> LayerCost:
    """`input_grad`: also count the gradient of the image, which training does not need."""
    needs_data_gradient = input_grad or layer.name in graph.after_parameters
    shapes = graph.shapes
    return _cost(layer.op, tuple([shapes[name] for name in layer.inputs]), shapes[layer.name], needs_data_gradient)


@lru_cache(maxsize=4096)  # deep networks repeat a few layers thousands of times
def _cost(op: Op, inputs: tuple[Shape, ...], output: Shape, needs_data_gradient: bool) -> LayerCost:
    arrays = op.parameters(list(inputs))
    parameters = sum(math.prod(shape) for shape in arrays.values())
    forward = 0
    if isinstance(op, (Conv, Dense)):
        forward = 2 * math.prod(arrays["weight"]) * math.prod(output[1:])
    return LayerCost(
        parameters=parameters,
        forward_flops=forward,
        data_gradient_flops=forward if needs_data_gradient else 0,
        weight_gradient_flops=forward,
        weight_bytes=parameters * FP32_BYTES,
        activation_bytes=math.prod(output) * FP32_BYTES,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphCost:
    """The sums over a graph's layers, per sample."""

    parameters: int
    forward_flops: int
    backward_flops: int
    weight_bytes: int
    activation_bytes: int


def graph_cost(graph: Graph, *, input_grad: bool = False) -> GraphCost:
    costs = [layer_cost(graph, layer, input_grad=input_grad) for layer in graph.layers]
    return GraphCost(
        parameters=sum(cost.parameters for cost in costs),
        forward_flops=sum(cost.forward_flops for cost in costs),
        backward_flops=sum(cost.backward_flops for cost in costs),
        weight_bytes=sum(cost.weight_bytes for cost in costs),
        activation_bytes=sum(cost.activation_bytes for cost in costs),
    )


def step_flops(graph: Graph, *, batch: int, phase: str, input_grad: bool = False) -> int:
    """FLOPs of one step of a phase: forward alone, or forward and backward."""
    cost = graph_cost(graph, input_grad=input_grad)
    return batch * (cost.forward_flops if phase == "forward" else cost.forward_flops + cost.backward_flops)


def step_bytes(graph: Graph, *, batch: int, phase: str) -> int:
    """The bytes of weights and activations one step moves in fp32, each array once per pass that uses it.

    Forward reads the weights and writes every activation. Backward reads both again and writes the gradient of each.
    The optimizer's update is not counted.
    """
    cost = graph_cost(graph)
    forward = cost.weight_bytes + batch * cost.activation_bytes
    return forward if phase == "forward" else 3 * forward


def array_owners(graph: Graph) -> dict[str, str]:
    """For each layer, the layer that made the array its output lies in: itself, unless no new array is needed.

    Flatten, and dropout when off, hand on their input's array. A ReLU that alone follows a convolution, dense, batch
    norm or add layer writes over that layer's output, which no gradient reads.
    """
    owners: dict[str, str] = {}
    for layer in graph.layers:
        shares = isinstance(layer.op, (Flatten, Dropout)) or _overwrites_input(graph, layer)
        owners[layer.name] = owners[layer.inputs[0]] if shares else layer.name
    return owners


def _overwrites_input(graph: Graph, layer: Layer) -> bool:
    if not isinstance(layer.op, Relu):
        return False
    before = graph.layer(layer.inputs[0])
    return isinstance(before.op, (Conv, Dense, BatchNorm, Add)) and len(graph.consumers[before.name]) == 1


def kept_for_backward(graph: Graph) -> list[Layer]:
    """The layers that made the arrays backward reads again; each array once, however many layers read it.

    A convolution, dense, batch norm, max pool, LRN or loss layer reads its input again; a ReLU or LRN its output.
    The gradients of average pools, additions, joins and reshapes depend on shapes alone.
    """
    read: set[str] = set()
    for layer in graph.layers:
        if isinstance(layer.op, (Conv, Dense, BatchNorm, MaxPool, Lrn, SoftmaxCrossEntropy)):
            read.update(layer.inputs)
        if isinstance(layer.op, (Relu, Lrn)):
            read.add(layer.name)
    owners = array_owners(graph)
    kept = {owners[name] for name in read}
    return [layer for layer in graph.layers if layer.name in kept]


def step_need_bytes(
    graph: Graph,
    *,
    batch: int,
    phase: str,
    value_bytes: int = FP32_BYTES,
    master_bytes: int = 0,
    optimizer_slots: int = 1,
) -> int:
    """The analytic memory need of a step: parameters, their gradients, optimizer state, and activations.

    Activations are those kept for backward; in the forward phase, the most alive at once. Not counted: workspace,
    running statistics, and the gradients of activations, which take the place of activations as backward frees them.
    `value_bytes` is the size of one activation or weight, `master_bytes` that of a second copy of each weight if one
    is kept (mixed precision), `optimizer_slots` the arrays the optimizer keeps per weight.
    """
    parameters = sum(layer_cost(graph, layer).parameters for layer in graph.layers)
    if phase == "forward":
        return parameters * (value_bytes + master_bytes) + batch * value_bytes * _most_alive(graph)
    state = master_bytes or value_bytes
    slots = optimizer_slots if phase == "train" else 0
    weights = parameters * (value_bytes + master_bytes + state + slots * state)
    kept = sum(math.prod(graph.shapes[layer.name]) for layer in kept_for_backward(graph))
    return weights + batch * value_bytes * kept


def _most_alive(graph: Graph) -> int:
    """The most values alive at once when each array is freed after its last use."""
    owners = array_owners(graph)
    last_use = {owners[name]: layer.name for layer in graph.layers for name in (*layer.inputs, layer.name)}
    alive, most = 0, 0
    for layer in graph.layers:
        if owners[layer.name] == layer.name:
            alive += math.prod(graph.shapes[layer.name])
        most = max(most, alive)
        for name in {owners[name] for name in (*layer.inputs, layer.name)}:
            if last_use[name] == layer.name:
                alive -= math.prod(graph.shapes[name])
    return most
