"""Costs computed by hand, and counted by torch."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from graph_examples import branching, random_graphs
from hypothesis import given, settings
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from deepstone.graph.builder import Builder
from deepstone.graph.cost import (
    array_owners,
    graph_cost,
    kept_for_backward,
    layer_cost,
    step_bytes,
    step_flops,
    step_need_bytes,
)
from deepstone.graph.graph import Graph


def plain() -> Graph:
    b = Builder("plain")
    x = b.input("data", (3, 8, 8))
    x = b.relu("relu", b.conv("conv", x, channels=4, kernel=3, pad=1))
    x = b.flatten("flat", b.max_pool("pool", x, kernel=2, stride=2))
    b.softmax_cross_entropy("loss", b.dense("fc", b.dropout("drop", x), features=5))
    return b.build()


def residual() -> Graph:
    b = Builder("residual")
    x = b.conv("stem", b.input("data", (3, 8, 8)), channels=4, kernel=3, stride=2, bias=False)
    y = b.relu("relu1", b.batch_norm("bn1", x))
    y = b.batch_norm("bn2", b.conv("conv2", y, channels=4, kernel=3, pad=1, groups=2, bias=False))
    x = b.relu("relu2", b.add("add", x, y))
    x = b.dense("fc", b.flatten("flat", b.global_pool("gap", x)), features=5, bias=False)
    b.softmax_cross_entropy("loss", x)
    return b.build()


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


def test_need_by_hand():
    graph = plain()
    # The image, the convolution's array that the ReLU wrote over, the pool's, and the scores.
    kept = 192 + 256 + 64 + 5
    assert step_need_bytes(graph, batch=2, phase="train") == 3 * 1748 + 2 * 4 * kept
    assert step_need_bytes(graph, batch=2, phase="train", optimizer_slots=2) == 4 * 1748 + 2 * 4 * kept
    assert step_need_bytes(graph, batch=2, phase="gradient") == 2 * 1748 + 2 * 4 * kept
    assert step_need_bytes(graph, batch=2, phase="forward") == 1748 + 2 * 4 * (192 + 256)
    mixed = step_need_bytes(graph, batch=2, phase="train", value_bytes=2, master_bytes=4)
    assert mixed == 437 * (2 + 4 + 4 + 4) + 2 * 2 * kept


def test_who_owns_which_array():
    owners = array_owners(plain())
    assert owners == {
        "data": "data",
        "conv": "conv",
        "relu": "conv",
        "pool": "pool",
        "flat": "pool",
        "drop": "pool",
        "fc": "fc",
        "loss": "loss",
    }


def test_relu_overwrites_only_what_it_alone_reads():
    owners = array_owners(branching())
    assert owners["relu1"] == "conv1"
    assert owners["left_relu"] == "left_bn"
    assert owners["sum_relu"] == "sum"
    assert owners["fc1_relu"] == "fc1"
    b = Builder("shared")
    x = b.conv("conv", b.input("data", (3, 4, 4)), channels=3, kernel=1)
    x = b.relu("after_join", b.concat("join", b.relu("relu", x), b.relu("again", x)))
    b.softmax_cross_entropy("loss", b.flatten("flat", x))
    owners = array_owners(b.build())
    assert [owners[name] for name in ("relu", "again", "after_join")] == ["relu", "again", "after_join"]


def test_kept_by_hand():
    assert [layer.name for layer in kept_for_backward(plain())] == ["data", "conv", "pool", "fc"]
    # bn1's array holds relu1's output; add's holds relu2's; the global pool's is what fc reads.
    expected = ["data", "stem", "bn1", "conv2", "add", "gap", "fc"]
    assert [layer.name for layer in kept_for_backward(residual())] == expected


Net = Callable[[Tensor, dict[str, Tensor], Tensor], Tensor]


def torch_plain(x: Tensor, p: dict[str, Tensor], labels: Tensor) -> Tensor:
    x = F.relu(F.conv2d(x, p["conv.weight"], p["conv.bias"], padding=1), inplace=True)
    x = F.max_pool2d(x, 2).flatten(1)
    return F.cross_entropy(F.linear(x, p["fc.weight"], p["fc.bias"]), labels)


def torch_residual(x: Tensor, p: dict[str, Tensor], labels: Tensor, groups: int = 2) -> Tensor:
    x = F.conv2d(x, p["stem.weight"], stride=2)
    y = F.relu(F.batch_norm(x, None, None, p["bn1.weight"], p["bn1.bias"], training=True), inplace=True)
    y = F.conv2d(y, p["conv2.weight"], padding=1, groups=groups)
    y = F.batch_norm(y, None, None, p["bn2.weight"], p["bn2.bias"], training=True)
    x = F.relu(x + y, inplace=True)
    x = F.adaptive_avg_pool2d(x, 1).flatten(1)
    return F.cross_entropy(F.linear(x, p["fc.weight"]), labels)


def torch_arguments(graph: Graph, batch: int) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    generator = torch.Generator().manual_seed(0)
    parameters = {
        f"{layer.name}.{name}": torch.randn(shape, generator=generator).requires_grad_()
        for layer in graph.layers
        for name, shape in graph.parameters(layer).items()
    }
    images = torch.randn((batch, *graph.shapes["data"]), generator=generator)
    return images, parameters, torch.zeros(batch, dtype=torch.int64)


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


@pytest.mark.parametrize(("graph", "net"), [(plain(), torch_plain), (residual(), torch_residual)])
def test_kept_is_what_torch_saves(graph, net):
    """Activations in torch are its saved arrays of two or more sides that are no parameters, each storage once."""
    images, parameters, labels = torch_arguments(graph, 3)
    not_activations = {parameter.untyped_storage().data_ptr() for parameter in parameters.values()}
    saved: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        address = tensor.untyped_storage().data_ptr()
        if tensor.is_floating_point() and tensor.ndim > 1 and address not in not_activations:
            saved[address] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        net(images, parameters, labels)
    ours = sum(math.prod(graph.shapes[layer.name]) for layer in kept_for_backward(graph))
    assert sum(tensor.untyped_storage().nbytes() for tensor in saved.values()) == 3 * 4 * ours


@settings(deadline=None, max_examples=60)
@given(graph=random_graphs())
def test_forward_need_is_the_most_alive_at_once(graph):
    owners = array_owners(graph)
    order = {layer.name: position for position, layer in enumerate(graph.layers)}
    ends: dict[str, int] = {}
    for name, owner in owners.items():
        uses = [order[name], *(order[taker.name] for taker in graph.consumers[name])]
        ends[owner] = max(ends.get(owner, 0), *uses)
    alive_at = [
        sum(math.prod(graph.shapes[owner]) for owner, end in ends.items() if order[owner] <= position <= end)
        for position in range(len(graph))
    ]
    parameters = graph_cost(graph).parameters
    assert step_need_bytes(graph, batch=2, phase="forward") == 4 * (parameters + 2 * max(alive_at))
    kept = [layer.name for layer in kept_for_backward(graph)]
    assert len(kept) == len(set(kept))
    assert all(owners[name] == name for name in kept)
