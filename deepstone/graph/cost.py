"""What a layer costs by definition: FLOPs, bytes, and the memory a step needs. The same for every framework."""

from __future__ import annotations

import math
from dataclasses import dataclass

from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import BatchNorm, Conv, Dense, Lrn, MaxPool, Relu, SoftmaxCrossEntropy

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
    shapes = graph.parameters(layer)
    parameters = sum(math.prod(shape) for shape in shapes.values())
    forward = _forward_flops(graph, layer)
    needs_data_gradient = input_grad or layer.name in graph.after_parameters
    return LayerCost(
        parameters=parameters,
        forward_flops=forward,
        data_gradient_flops=forward if needs_data_gradient else 0,
        weight_gradient_flops=forward,
        weight_bytes=parameters * FP32_BYTES,
        activation_bytes=math.prod(graph.shapes[layer.name]) * FP32_BYTES,
    )


def _forward_flops(graph: Graph, layer: Layer) -> int:
    if isinstance(layer.op, Conv):
        _, height, width = graph.shapes[layer.name]
        return 2 * math.prod(graph.parameters(layer)["weight"]) * height * width
    if isinstance(layer.op, Dense):
        return 2 * math.prod(graph.parameters(layer)["weight"])
    return 0


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
    """The fewest bytes of weights and activations one step must move in fp32, each array once per pass that uses it.

    Forward reads the weights and writes every activation. Backward reads both again and writes the gradient of each.
    """
    cost = graph_cost(graph)
    forward = cost.weight_bytes + batch * cost.activation_bytes
    return forward if phase == "forward" else 3 * forward


def kept_for_backward(graph: Graph) -> list[Layer]:
    """The layers whose outputs backward reads again, each counted once however many read it.

    A convolution, dense, batch norm, max pool or LRN layer needs its input; a ReLU or LRN its output; a loss its input.
    The gradients of average pools, additions, joins and reshapes depend on shapes alone.
    A ReLU that alone follows such a layer writes over its input, so that input is not kept beside its output.
    """
    needed: set[str] = set()
    for layer in graph.layers:
        if isinstance(layer.op, (Conv, Dense, BatchNorm, MaxPool, Lrn, SoftmaxCrossEntropy)):
            needed.update(layer.inputs)
        if isinstance(layer.op, (Relu, Lrn)):
            needed.add(layer.name)
    return [layer for layer in graph.layers if layer.name in needed]


def step_need_bytes(
    graph: Graph,
    *,
    batch: int,
    phase: str,
    value_bytes: int = FP32_BYTES,
    master_bytes: int = 0,
    optimizer_slots: int = 1,
) -> int:
    """The analytic memory need of a step: parameters, gradients, optimizer state and live activations, no workspace.

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
    """The most values alive at once when each output is freed after its last use."""
    order = {layer.name: position for position, layer in enumerate(graph.layers)}
    last_use = {
        layer.name: max((order[taker.name] for taker in graph.consumers[layer.name]), default=order[layer.name])
        for layer in graph.layers
    }
    alive, most = 0, 0
    expiring: dict[int, list[str]] = {}
    for name, position in last_use.items():
        expiring.setdefault(position, []).append(name)
    for position, layer in enumerate(graph.layers):
        alive += math.prod(graph.shapes[layer.name])
        most = max(most, alive)
        for name in expiring.get(position, ()):
            alive -= math.prod(graph.shapes[name])
    return most
