"""The networks of the studies as they were written for Caffe: the structures that the zoo has."""

from __future__ import annotations

from pathlib import Path

import caffe_nets
import pytest
from caffe_nets import graph_of, imported
from known_counts import PARAMETERS

from deepstone.graph.cost import graph_cost
from deepstone.graph.graph import Graph
from deepstone.models.load import load_in_process
from deepstone.models.zoo import ZOO

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "alexnet.prototxt"
GOOGLENET_WITH_HEADS = 13_378_280  # Caffe's bvlc_googlenet with its two auxiliary heads


def parameters(graph: Graph) -> int:
    return graph_cost(graph).parameters


def test_the_example_is_the_zoo_s_alexnet() -> None:
    model = load_in_process(str(EXAMPLE))
    assert model.graph.sha == ZOO["alexnet"].make().sha
    assert (model.name, model.source, len(model.file_sha256)) == ("AlexNet", str(EXAMPLE), 64)
    assert parameters(model.graph) == PARAMETERS["alexnet"]


def test_cifarnet() -> None:
    found = imported(caffe_nets.cifarnet())
    assert found.graph.sha == ZOO["cifarnet"].make().sha
    assert (found.graph.name, found.batch) == ("CIFAR10_full", 100)


def test_googlenet() -> None:
    found = imported(caffe_nets.googlenet(heads=False))
    assert found.graph.sha == ZOO["googlenet"].make().sha
    assert found.batch == 32
    assert imported(caffe_nets.googlenet(heads=False), "TEST").batch == 50


def test_googlenet_with_its_heads() -> None:
    graph = graph_of(caffe_nets.googlenet(heads=True))
    assert parameters(graph) == GOOGLENET_WITH_HEADS
    assert {layer.name: getattr(layer.op, "weight", None) for layer in graph.losses} == {
        "loss1/loss": 0.3,
        "loss2/loss": 0.3,
        "loss": 1.0,
    }
    assert graph.shapes["loss1/ave_pool"] == (512, 4, 4)
    flattens = [layer.name for layer in graph.layers if layer.op.kind == "flatten"]
    assert flattens == ["loss1/relu_conv/flatten", "loss2/relu_conv/flatten", "pool5/drop_7x7_s1/flatten"]


def test_vgg16_in_the_form_before_today_s() -> None:
    graph, ours = graph_of(caffe_nets.vgg16()), ZOO["vgg16"].make()
    assert parameters(graph) == PARAMETERS["vgg16"]
    assert list(graph.shapes.values()) == list(ours.shapes.values())
    renamed = {"prob": "loss"}  # the Softmax at the end became the loss
    assert [renamed.get(name, name) for name in graph.shapes] == list(ours.shapes)
    assert [layer.op.kind for layer in graph.layers] == [layer.op.kind for layer in ours.layers]


def test_resnet50() -> None:
    graph, ours = graph_of(caffe_nets.resnet50()), ZOO["resnet50"].make()
    assert parameters(graph) == PARAMETERS["resnet50"]
    assert graph.shapes["pool1"] == (64, 56, 56)
    assert graph.shapes["res5c"] == (2048, 7, 7)
    assert graph.shapes["prob"] == ()
    kinds = [layer.op.kind for layer in graph.layers]
    assert kinds.count("batch_norm") == 53
    for kind in ("conv", "batch_norm", "add", "relu"):
        assert kinds.count(kind) == [layer.op.kind for layer in ours.layers].count(kind)
    # The authors' network strides in the 1x1 convolutions, so its 3x3 ones have a quarter of the work.
    assert graph_cost(graph).forward_flops == 7_715_946_496 < graph_cost(ours).forward_flops


@pytest.mark.parametrize("name", ["conv1", "bn2a_branch2a", "res5c"])
def test_layers_keep_their_names(name: str) -> None:
    assert graph_of(caffe_nets.resnet50()).layer(name)
