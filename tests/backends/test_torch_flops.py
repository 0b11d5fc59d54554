"""The FLOPs of every model of the zoo against those that torch itself counts, without computing anything."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from deepstone.backends.torch.lower import Lowering
from deepstone.graph.cost import graph_cost, layer_cost
from deepstone.graph.graph import Graph
from deepstone.graph.ops import Conv
from deepstone.models.zoo import ZOO

BATCH = 2
# Torch's counter takes some milliseconds per layer.
DEEPEST = ("inception-v4", "resnet101", "resnet152", "resnet1001", "resnet5000")


def counted_by_torch(graph: Graph, *, input_grad: bool) -> tuple[int, int]:
    """Forward and backward, of the network as it is lowered, on tensors that have a shape and no values."""
    network = Lowering(graph, graph.layers, dropout=False).module(graph.input.name).to("meta")
    shape = (BATCH, *graph.shapes[graph.input.name])
    samples = torch.empty(shape, device="meta").requires_grad_(input_grad)
    labels = torch.empty(BATCH, dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as forward:
        loss = network(samples, labels)
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


def overcount(graph: Graph) -> int:
    """Torch takes the weight gradient of a grouped convolution for that of a whole one: `groups` times too much."""
    return sum(
        (layer.op.groups - 1) * layer_cost(graph, layer).weight_gradient_flops
        for layer in graph.layers
        if isinstance(layer.op, Conv)
    )


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.deep) if name in DEEPEST else name for name in ZOO]
)
def test_flops_are_those_that_torch_counts(name: str):
    graph = ZOO[name].make()
    cost = graph_cost(graph)
    forward, backward = counted_by_torch(graph, input_grad=False)
    assert forward == BATCH * cost.forward_flops
    assert backward == BATCH * (cost.backward_flops + overcount(graph))


@pytest.mark.parametrize("name", ["cifarnet", "alexnet", "googlenet"])
def test_flops_with_the_gradient_of_the_image(name: str):
    graph = ZOO[name].make()
    cost = graph_cost(graph, input_grad=True)
    forward, backward = counted_by_torch(graph, input_grad=True)
    assert forward == BATCH * cost.forward_flops
    assert backward == BATCH * (cost.backward_flops + overcount(graph))


def test_only_the_grouped_network_is_overcounted():
    """So that the exception stays one: alexnet as Caffe has it splits three convolutions into two groups."""
    assert [name for name, entry in ZOO.items() if overcount(entry.make())] == ["alexnet"]
