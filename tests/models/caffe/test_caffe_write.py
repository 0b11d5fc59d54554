"""A graph written for Caffe is the same graph when it is read again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from caffe_nets import graph_of, imported, tiny
from depth import examples
from graph_examples import branching, random_graphs
from hypothesis import given

from deepstone.errors import UsageError
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import AveragePool, MaxPool
from deepstone.models.caffe.write import prototxt
from deepstone.models.zoo import ZOO

# Caffe's averages count the padding; in Inception-v4 they must not.
WRITABLE = sorted(set(ZOO) - {"inception-v4", "resnet5000"})


def essential(graph: Graph) -> list[Layer]:
    """Its layers, without what makes no difference: how a pool would round what needs no rounding, count no padding."""
    found: list[Layer] = []
    for layer in graph.layers:
        op = layer.op
        if isinstance(op, (MaxPool, AveragePool)):
            floors = replace(op, ceil_mode=False)
            op = floors if floors.output(graph.input_shapes(layer)) == graph.shapes[layer.name] else op
        if isinstance(op, AveragePool) and not any(op.pad):
            op = replace(op, count_pad=True)
        found.append(replace(layer, op=op))
    return found


def again(graph: Graph) -> Graph:
    return graph_of(prototxt(graph, batch=4))


@pytest.mark.parametrize("name", WRITABLE)
def test_zoo_comes_back(name: str) -> None:
    graph = ZOO[name].make()
    back = again(graph)
    assert essential(back) == essential(graph)
    assert back.name == graph.name
    assert back.shapes == graph.shapes


@pytest.mark.parametrize("name", ["alexnet", "cifarnet", "googlenet", "resnet50"])
def test_networks_made_for_caffe_come_back_to_the_last_detail(name: str) -> None:
    graph = ZOO[name].make()
    assert again(graph).sha == graph.sha


def test_the_batch_is_kept() -> None:
    assert imported(prototxt(ZOO["cifarnet"].make(), batch=37)).batch == 37


def test_what_caffe_cannot_express_is_told_all_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        prototxt(branching(), batch=1)
    message = str(caught.value)
    assert "it pads opposite sides alike, not [1, 0, 2, 1] (layer conv1)" in message
    assert "its averages always count the padding (layer right)" in message
    with pytest.raises(UsageError, match=r"inception-v4: .* \(layers features.6.branch3.0, .* and 9 more\)"):
        prototxt(ZOO["inception-v4"].make(), batch=1)


@examples(80)
@given(random_graphs())
def test_any_graph_comes_back_or_is_refused(graph: Graph) -> None:
    try:
        text = prototxt(graph, batch=2)
    except UsageError:
        return
    back = graph_of(text)
    assert essential(back) == essential(graph)


def test_names_are_escaped_and_do_not_collide() -> None:
    b = Builder('a "quoted" \\ name')
    x = b.input("label", (3, 8, 8))
    x = b.batch_norm("label_", x, epsilon=1e-3, momentum=0.3)
    x = b.relu("label_/scale", x)
    x = b.dense("fc é", b.flatten('fl"at', x), features=3)
    b.softmax_cross_entropy("loss", x)
    graph = b.build()
    assert again(graph).sha == graph.sha
    assert again(graph).name == graph.name


def test_it_is_written_as_people_write_it() -> None:
    text = prototxt(graph_of(tiny('layer { name: "r" type: "ReLU" bottom: "data" top: "r" }', end="r")), batch=4)
    # Nobody writes over the image, and what the loss reads is an InnerProduct.
    assert 'layer { name: "r" type: "ReLU" bottom: "data" top: "r" }' in text
    text = prototxt(ZOO["alexnet"].make(), batch=4)
    assert 'layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }' in text
    assert "round_mode" not in text
    (rounded,) = [line for line in prototxt(ZOO["resnet50"].make(), batch=4).splitlines() if "round_mode" in line]
    assert rounded.strip() == "round_mode: FLOOR"  # Caffe would round the first pool up
