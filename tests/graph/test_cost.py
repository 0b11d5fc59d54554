"""Costs computed by hand, and counted by torch."""

from __future__ import annotations

import math

import pytest
from depth import examples
from graph_examples import random_graphs
from hypothesis import given
from torch.utils.flop_counter import FlopCounterMode
from two_networks import Net, plain, residual, torch_arguments, torch_plain, torch_residual

from deepstone.graph.builder import Builder
from deepstone.graph.cost import LayerWork, graph_cost, layer_cost, layer_work, step_bytes, step_flops
from deepstone.graph.graph import Graph


def test_layer_cost_by_hand():
    graph = plain()
    conv = layer_cost(graph, graph.layer("conv"))
    assert (conv.parameters, conv.weight_bytes) == (4 * 3 * 9 + 4, 448)
    assert conv.forward_flops == 2 * (4 * 3 * 9) * 64 == 13824
    assert conv.data_gradient_flops == 0  # nobody needs the gradient of the image …
    assert conv.backward_flops == conv.weight_gradient_flops == 13824
    assert conv.activation_bytes == 4 * 64 * 4
    wanted = layer_cost(graph, graph.layer("conv"), input_grad=True)  # … unless it is asked for
    assert (wanted.data_gradient_flops, wanted.backward_flops) == (13824, 27648)
    dense = layer_cost(graph, graph.layer("fc"))
    assert (dense.parameters, dense.forward_flops, dense.backward_flops) == (64 * 5 + 5, 640, 1280)
    pool = layer_cost(graph, graph.layer("pool"))
    assert (pool.parameters, pool.forward_flops, pool.backward_flops) == (0, 0, 0)


def test_graph_cost_by_hand():
    cost = graph_cost(plain())
    assert cost.parameters == 112 + 325
    assert cost.forward_flops == 13824 + 640
    assert cost.backward_flops == 13824 + 1280
    assert cost.weight_bytes == 437 * 4
    assert cost.activation_bytes == 4 * (192 + 256 + 256 + 64 + 64 + 64 + 5 + 1)


def test_step_by_hand():
    graph = plain()
    assert step_flops(graph, batch=3, phase="forward") == 3 * 14464
    assert step_flops(graph, batch=3, phase="train") == 3 * (14464 + 15104)
    assert step_flops(graph, batch=3, phase="gradient", input_grad=True) == 3 * (14464 + 28928)
    forward = 1748 + 3 * 4 * 902
    assert step_bytes(graph, batch=3, phase="forward") == forward
    assert step_bytes(graph, batch=3, phase="train") == 3 * forward


def torch_flops(net: Net, graph: Graph, batch: int, *, input_grad: bool) -> tuple[int, int]:
    """Forward and backward, as torch counts them."""
    images, parameters, labels = torch_arguments(graph, batch)
    with FlopCounterMode(display=False) as forward:
        loss = net(images.requires_grad_(input_grad), parameters, labels)
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


@pytest.mark.parametrize("input_grad", [False, True])
def test_flops_as_torch_counts_them(input_grad):
    graph = plain()
    cost = graph_cost(graph, input_grad=input_grad)
    counted = torch_flops(torch_plain, graph, 3, input_grad=input_grad)
    assert counted == (3 * cost.forward_flops, 3 * cost.backward_flops)


def test_torch_counts_grouped_weight_gradients_groups_times():
    """Torch takes the weight gradient of a grouped convolution for that of a whole one: `groups` times too much."""
    graph, groups = residual(), 2
    cost = graph_cost(graph)
    grouped = layer_cost(graph, graph.layer("conv2"))
    forward, backward = torch_flops(torch_residual, graph, 3, input_grad=False)
    assert forward == 3 * cost.forward_flops
    assert backward == 3 * (cost.backward_flops + (groups - 1) * grouped.weight_gradient_flops)


def work_of(graph: Graph, name: str, **options: object) -> LayerWork:
    return layer_work(graph, graph.layer(name), **{"batch": 3, "phase": "train", **options})  # type: ignore[arg-type]


def test_work_of_a_convolution_by_hand():
    graph = plain()
    work = work_of(graph, "conv")
    image, weights, output = 3 * 192, 112, 3 * 256
    assert work.op == "conv"
    assert work.forward.flops == 3 * 13824
    assert work.forward.bytes == 4 * (image + weights + output)
    # The gradient of the output and the image are read, the gradient of the weights is written.
    assert work.backward.flops == 3 * 13824
    assert work.backward.bytes == 4 * (output + image + weights)
    wanted = work_of(graph, "conv", input_grad=True)
    assert wanted.backward.bytes == 4 * (output + image + weights + weights + image)
    assert work_of(graph, "conv", value_bytes=2).forward.bytes == work.forward.bytes // 2


def test_work_of_the_others_by_hand():
    graph = plain()
    relu = work_of(graph, "relu")
    assert (relu.forward.flops, relu.forward.bytes) == (0, 4 * 3 * (256 + 256))
    assert relu.backward.bytes == 4 * 3 * (256 + 256 + 256)  # what came back, what went through, what goes back
    assert work_of(graph, "pool").backward.bytes == 4 * 3 * (64 + 64 + 256)
    assert work_of(graph, "loss").forward.bytes == 4 * 3 * (5 + 1)
    for name in ("data", "flat", "drop"):
        assert work_of(graph, name).forward.bytes == work_of(graph, name).backward.bytes == 0
    assert work_of(graph, "drop", dropout=True).forward.bytes == 4 * 3 * (64 + 64)
    add = work_of(residual(), "add")
    assert (add.forward.bytes, add.backward.bytes) == (4 * 3 * 3 * 36, 0)  # a sum hands its gradient on


def test_nothing_trained_before_it_needs_no_gradient_of_inputs():
    b = Builder("pool first")
    x = b.max_pool("pool", b.input("data", (3, 8, 8)), kernel=2, stride=2)
    b.softmax_cross_entropy("loss", b.dense("fc", b.flatten("flat", x), features=5))
    graph = b.build()
    assert work_of(graph, "pool").backward.bytes == 0
    assert work_of(graph, "pool", input_grad=True).backward.bytes > 0


@examples(60)
@given(graph=random_graphs())
def test_work_adds_up_to_the_step(graph: Graph):
    for phase in ("forward", "train"):
        works = [layer_work(graph, layer, batch=2, phase=phase) for layer in graph.layers]
        flops = sum(work.forward.flops + work.backward.flops for work in works)
        assert flops == step_flops(graph, batch=2, phase=phase)
        assert all(work.backward.bytes == work.backward.flops == 0 for work in works) or phase != "forward"
        # What a layer must write and read at least: its own output, and one input.
        for layer, work in zip(graph.layers, works, strict=True):
            if work.forward.bytes:
                assert work.forward.bytes >= 4 * 2 * math.prod(graph.shapes[layer.name])
