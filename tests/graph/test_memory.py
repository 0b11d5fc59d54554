"""The memory of a step computed by hand, and as torch keeps it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from depth import examples
from graph_examples import branching, random_graphs
from hypothesis import given
from torch import Tensor
from two_networks import plain, residual, torch_arguments, torch_plain, torch_residual

from deepstone.graph.builder import Builder
from deepstone.graph.cost import graph_cost
from deepstone.graph.graph import Graph
from deepstone.graph.memory import array_owners, kept_for_backward, largest_live_set, step_memory
from deepstone.models.zoo import ZOO


def need_bytes(graph: Graph, **options: Any) -> int:
    return step_memory(graph, **options).total_bytes


def test_need_by_hand():
    graph = plain()
    # The image, the convolution's array that the ReLU wrote over, the pool's, and the scores.
    kept = 192 + 256 + 64 + 5
    assert need_bytes(graph, batch=2, phase="train") == 3 * 1748 + 2 * 4 * kept
    assert need_bytes(graph, batch=2, phase="train", optimizer_slots=2) == 4 * 1748 + 2 * 4 * kept
    assert need_bytes(graph, batch=2, phase="gradient") == 2 * 1748 + 2 * 4 * kept
    assert need_bytes(graph, batch=2, phase="forward") == 1748 + 2 * 4 * (192 + 256)
    mixed = need_bytes(graph, batch=2, phase="train", value_bytes=2, master_bytes=4)
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


def test_layers_by_hand():
    memory = {layer.name: layer for layer in step_memory(plain(), batch=2, phase="train").layers}
    conv = memory["conv"]
    assert (conv.parameters_bytes, conv.gradients_bytes, conv.optimizer_bytes) == (448, 448, 448)
    assert conv.activations_bytes == 2 * 4 * 256
    assert conv.total_bytes == 3 * 448 + 2048
    assert memory["relu"].total_bytes == 0  # wrote over the convolution's array
    assert [name for name, layer in memory.items() if layer.activations_bytes] == ["data", "conv", "pool", "fc"]


def test_the_forward_phase_has_what_is_alive_at_its_widest():
    memory = step_memory(plain(), batch=2, phase="forward")
    assert largest_live_set(plain()) == {"data", "conv"}
    assert memory.activations_bytes == 2 * 4 * (192 + 256)
    assert memory.gradients_bytes == memory.optimizer_bytes == 0


def test_checkpointing_keeps_one_segment_and_what_lies_between():
    for name in ("vgg16", "resnet50", "googlenet"):
        graph = ZOO[name].make()
        plainly = step_memory(graph, batch=4, phase="train")
        again = step_memory(graph, batch=4, phase="train", checkpointing=True)
        assert again.parameters_bytes == plainly.parameters_bytes
        assert again.activations_bytes < 0.8 * plainly.activations_bytes


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


@examples(60)
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
    assert need_bytes(graph, batch=2, phase="forward") == 4 * (parameters + 2 * max(alive_at))
    kept = [layer.name for layer in kept_for_backward(graph)]
    assert len(kept) == len(set(kept))
    assert all(owners[name] == name for name in kept)
    memory = step_memory(graph, batch=2, phase="train")
    parts = (memory.parameters_bytes, memory.gradients_bytes, memory.optimizer_bytes, memory.activations_bytes)
    assert memory.total_bytes == sum(parts)
    assert memory.activations_bytes == 2 * 4 * sum(math.prod(graph.shapes[name]) for name in kept)


def test_later_operations_keep_what_their_gradients_read():
    b = Builder("gated")
    x = b.conv("conv", b.input("data", (3, 8, 8)), channels=4, kernel=3)
    x = b.clip("relu6", x)  # writes over the convolution's array
    gate = b.sigmoid("gate", b.conv("squeeze", b.global_pool("pool", x), channels=4, kernel=1))
    x = b.silu("silu", b.conv("last", b.multiply("scaled", x, gate), channels=2, kernel=1))
    graph = b.build_classifier("scores", b.flatten("flat", x), classes=3)
    assert array_owners(graph)["relu6"] == "conv"
    kept = [layer.name for layer in kept_for_backward(graph)]
    assert kept == ["data", "conv", "pool", "gate", "scaled", "last", "silu", "scores"]
