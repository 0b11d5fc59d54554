"""The torch lowering computes what the float64 reference computes, op by op, whole networks, and however it is run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from depth import examples
from graph_examples import branching
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from deepstone.backends.owners import scope_name
from deepstone.backends.torch.lower import BlockConv, Lowering
from deepstone.backends.torch.network import Checkpointed
from deepstone.graph import reference
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.graph.segments import split
from deepstone.graph.space_to_depth import rewritten
from deepstone.graph.weights import initial_parameters, synthetic_batch
from deepstone.models.zoo import ZOO


def lowered(graph: Graph, *, checkpointing: bool = False, space_to_depth: bool = False, seed: int = 0) -> nn.Module:
    """The network in float64, with the initial weights of the seed."""
    if checkpointing:
        network: nn.Module = Checkpointed(graph, dropout=False, space_to_depth=space_to_depth)
    else:
        lowering = Lowering(graph, graph.layers, dropout=False, space_to_depth=space_to_depth)
        network = lowering.module(graph.input.name)
    owners = {path.rpartition(".")[2]: module for path, module in network.named_modules()}
    network.double()
    with torch.no_grad():
        for layer, parameters in initial_parameters(graph, seed).items():
            for name, array in parameters.items():
                owners[scope_name(layer)].get_parameter(name).copy_(torch.from_numpy(array))
    return network


def gradients_of(graph: Graph, network: nn.Module) -> dict[tuple[str, str], np.ndarray]:
    owners = {path.rpartition(".")[2]: module for path, module in network.named_modules()}
    return {
        (layer.name, name): owners[scope_name(layer.name)].get_parameter(name).grad.numpy()
        for layer in graph.layers
        for name in graph.parameters(layer)
    }


def assert_same(graph: Graph, *, batch: int = 2, **ways: bool) -> None:
    samples, labels = synthetic_batch(graph, batch, 0)
    expected = reference.step(graph, initial_parameters(graph, 0), samples, labels)
    network = lowered(graph, **ways)
    loss = network(torch.from_numpy(samples).double(), torch.from_numpy(labels))
    loss.backward()
    assert loss.item() == pytest.approx(expected.loss, rel=1e-9)
    largest = max(
        np.linalg.norm(array) for arrays in expected.parameter_gradients.values() for array in arrays.values()
    )
    for (layer, name), gradient in gradients_of(graph, network).items():
        wanted = expected.parameter_gradients[layer][name]
        scale = max(np.linalg.norm(wanted), 1e-6 * largest)
        assert np.linalg.norm(gradient - wanted) / scale < 1e-8, f"{layer}/{name}"


def net(op: str, **attributes: object) -> Graph:
    """conv, the op in question, dense: so that gradients pass through the op."""
    b = Builder(op)
    x = b.conv("before", b.input("data", (3, 13, 10)), channels=4, kernel=3)
    x = getattr(b, op)("op", x, **attributes)
    b.softmax_cross_entropy("loss", b.dense("after", b.flatten("flat", x), features=5))
    return b.build()


OPS = [
    ("relu", {}),
    ("batch_norm", {"epsilon": 1e-3, "momentum": 0.2}),
    ("lrn", {"size": 3, "alpha": 0.3, "beta": 0.6, "k": 1.5}),
    ("lrn", {"size": 3, "alpha": 0.3, "beta": 0.6, "k": 1.5, "within_channel": True}),
    ("global_pool", {}),
    ("dropout", {}),
    ("conv", {"channels": 6, "kernel": (3, 2), "stride": (2, 1), "pad": (1, 2), "groups": 2}),
    ("conv", {"channels": 4, "kernel": 3, "pad": (0, 2, 1, 0), "dilation": 2, "bias": False}),
]


@pytest.mark.parametrize(("op", "attributes"), OPS, ids=lambda value: value if isinstance(value, str) else "")
def test_each_op_agrees_with_the_reference(op: str, attributes: dict[str, object]) -> None:
    assert_same(net(op, **attributes))


@given(
    op=st.sampled_from(["max_pool", "average_pool"]),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.integers(1, 4),
    pads=st.tuples(*[st.integers(0, 3)] * 4),
    ceil_mode=st.booleans(),
    count_pad=st.booleans(),
)
@examples(60)
def test_every_pool_agrees_with_the_reference(op, kernel, stride, pads, ceil_mode, count_pad) -> None:
    top, bottom, left, right = pads
    pad = (min(top, kernel[0] - 1), min(bottom, kernel[0] - 1), min(left, kernel[1] - 1), min(right, kernel[1] - 1))
    attributes = {"kernel": kernel, "stride": stride, "pad": pad, "ceil_mode": ceil_mode}
    if op == "average_pool":
        attributes["count_pad"] = count_pad
    assert_same(net(op, **attributes))


@given(
    channels=st.integers(1, 4),
    image=st.tuples(st.integers(9, 16), st.integers(9, 16)),
    kernel=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    stride=st.integers(2, 4),
    pads=st.tuples(*[st.integers(0, 3)] * 4),
    bias=st.booleans(),
)
@examples(60)
def test_a_strided_convolution_over_blocks_agrees(channels, image, kernel, stride, pads, bias) -> None:
    b = Builder("blocks")
    x = b.input("data", (channels, *image))
    x = b.conv("conv1", x, channels=3, kernel=kernel, stride=stride, pad=pads, bias=bias)
    b.softmax_cross_entropy("loss", b.dense("after", b.flatten("flat", x), features=5))
    graph = b.build()
    assert [layer.name for layer in rewritten(graph)] == ["conv1"]
    assert_same(graph, space_to_depth=True)


def test_only_strided_convolutions_over_few_channels_are_rewritten() -> None:
    assert {name: [layer.name for layer in rewritten(ZOO[name].make())] for name in ("resnet50", "vgg11")} == {
        "resnet50": ["conv1"],
        "vgg11": [],
    }
    plain, blocks = (lowered(ZOO["alexnet-owt"].make(), space_to_depth=on) for on in (False, True))
    assert [isinstance(module, BlockConv) for module in blocks.modules()].count(True) == 1
    assert [name for name, _ in blocks.named_parameters()] == [name for name, _ in plain.named_parameters()]


def test_branches_joins_and_weighted_losses_agree() -> None:
    assert_same(branching(), batch=3)


def test_checkpointing_computes_the_same_and_updates_statistics_once() -> None:
    graph = ZOO["resnet110"].make()
    assert len(split(graph)) > 3
    samples, labels = (torch.from_numpy(array) for array in synthetic_batch(graph, 2, 0))
    plain, checkpointed = lowered(graph), lowered(graph, checkpointing=True)
    losses = [network(samples.double(), labels) for network in (plain, checkpointed)]
    for loss in losses:
        loss.backward()
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-12)
    expected = gradients_of(graph, plain)
    for key, gradient in gradients_of(graph, checkpointed).items():
        np.testing.assert_allclose(gradient, expected[key], rtol=1e-7, atol=1e-12, err_msg=str(key))
    running = [
        {path.rpartition("layer_")[2]: buffer for path, buffer in network.named_buffers() if "running" in path}
        for network in (plain, checkpointed)
    ]
    for name, buffer in running[0].items():
        torch.testing.assert_close(running[1][name], buffer)


def test_checkpointed_branches_agree() -> None:
    assert_same(ZOO["cifarnet"].make(), checkpointing=True)


@pytest.mark.parametrize("model", ["cifarnet", pytest.param("alexnet", marks=pytest.mark.deep), "googlenet"])
def test_zoo_networks_agree_in_float64(model: str) -> None:
    assert_same(ZOO[model].make(), batch=1)


@pytest.mark.parametrize("model", [name for name in ZOO if name not in ("resnet5000", "resnet1001")])
def test_every_zoo_network_has_the_graphs_shapes(model: str) -> None:
    graph = ZOO[model].make()
    network = Lowering(graph, graph.layers, dropout=True).module(graph.input.name).to("meta")
    images = torch.empty(2, *graph.shapes[graph.input.name], device="meta")
    assert network(images, torch.empty(2, dtype=torch.int64, device="meta")).shape == ()
    assert sum(parameter.numel() for parameter in network.parameters()) == sum(
        int(np.prod(shape)) for layer in graph.layers for shape in graph.parameters(layer).values()
    )


def test_layer_names_never_collide_as_scope_names() -> None:
    names = ["a.b", "a_b", "a/b", "a_2e_b", "a b", "ab"]
    assert len({scope_name(name) for name in names}) == len(names)


def test_in_place_work_spares_what_others_read() -> None:
    """A conv whose output is read by a ReLU and by an addition must not be overwritten by the ReLU."""
    b = Builder("shared")
    x = b.conv("conv", b.input("data", (3, 6, 6)), channels=3, kernel=3, pad=1)
    x = b.add("sum", b.relu("relu", x), x)
    b.softmax_cross_entropy("loss", b.dense("fc", b.flatten("flat", x), features=4))
    assert_same(b.build())
