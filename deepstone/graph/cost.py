"""The cost of a layer by definition: FLOPs and bytes. The same for every framework."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from deepstone.absent import Absent
from deepstone.graph import ops
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Op, Shape

FP32_BYTES = 4
COST_UNKNOWN = Absent("the model is a module of a framework, which only that framework sees into")


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
    if isinstance(op, ops.Module | ops.ModuleLoss):
        raise ValueError("what a module costs is not known; ask graph.opaque first")
    arrays = op.parameters(list(inputs))
    parameters = sum(math.prod(shape) for shape in arrays.values())
    forward = 0
    if isinstance(op, (ops.Conv, ops.Dense)):
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
    """Return the FLOPs of one step of a phase: only forward, or forward and backward."""
    cost = graph_cost(graph, input_grad=input_grad)
    return batch * (cost.forward_flops if phase == "forward" else cost.forward_flops + cost.backward_flops)


def step_bytes(graph: Graph, *, batch: int, phase: str) -> int:
    """Return the bytes of weights and activations that one step moves in fp32, each array once per pass that uses it.

    Forward reads the weights and writes every activation. Backward reads both again and writes the gradient of each.
    The optimizer's update is not counted.
    """
    cost = graph_cost(graph)
    forward = cost.weight_bytes + batch * cost.activation_bytes
    return forward if phase == "forward" else 3 * forward


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """The least work of one pass: FLOPs, and bytes to and from memory."""

    flops: int
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerWork:
    """The work of one layer in one step. The forward phase has no backward work."""

    op: str
    forward: Work
    backward: Work


def layer_work(
    graph: Graph,
    layer: Layer,
    *,
    batch: int,
    phase: str,
    value_bytes: int = FP32_BYTES,
    input_grad: bool = False,
    dropout: bool = False,
) -> LayerWork:
    """Return the work per step of a phase. Each array that a pass needs counts once; `value_bytes` is the size of a
    value.

    Forward reads inputs and weights and writes the output. Backward reads the gradient of the output and the other
    arrays in the formula, and writes the gradients of weights and, if a layer before it has parameters, of inputs.
    Operations that a framework can do by passing on an array or a part of it cost nothing: flatten, slice, dropout when
    off, and backward of add and concat.
    """
    cost = layer_cost(graph, layer, input_grad=input_grad)
    needs_data_gradient = input_grad or layer.name in graph.after_parameters
    inputs = batch * sum(math.prod(shape) for shape in graph.input_shapes(layer))
    output = batch * math.prod(graph.shapes[layer.name])
    idle = isinstance(layer.op, (ops.Input, ops.Flatten, ops.Slice)) or (
        isinstance(layer.op, ops.Dropout) and not dropout
    )
    forward = 0 if idle else inputs + cost.parameters + output
    backward = 0 if idle else _backward_values(layer.op, inputs, output, cost.parameters, needs_data_gradient)
    trains = phase != "forward"
    return LayerWork(
        op=layer.op.kind,
        forward=Work(flops=batch * cost.forward_flops, bytes=value_bytes * forward),
        backward=Work(flops=trains * batch * cost.backward_flops, bytes=trains * value_bytes * backward),
    )


def _backward_values(op: Op, inputs: int, output: int, parameters: int, needs_data_gradient: bool) -> int:
    """Return how many values the backward pass of an operation reads and writes at least."""
    if isinstance(op, (ops.Conv, ops.Dense, ops.BatchNorm)):
        weight_gradient = output + inputs + parameters
        return weight_gradient + (parameters + inputs if needs_data_gradient else 0)
    if not needs_data_gradient or isinstance(op, (ops.Add, ops.Concat)):
        return 0
    read_again = 0
    # A max pool reads an index per output. An activation reads its input or output, which have the same size.
    if isinstance(op, (ops.Activation, ops.MaxPool)):
        read_again = output
    elif isinstance(op, (ops.Lrn, ops.Multiply, ops.SoftmaxCrossEntropy)):
        read_again = inputs
    return output + read_again + inputs
