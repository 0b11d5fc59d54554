"""What files of other people have: no size of images, ceil_mode, a convolution at the end, Sigmoid, products."""

from __future__ import annotations

import pytest

from deepstone.errors import GraphError, UsageError
from deepstone.exchange.load import load_model
from deepstone.graph.graph import Graph
from deepstone.graph.ops import MaxPool, Multiply, SoftmaxCrossEntropy
from deepstone.models.caffe.network import network

CONV = 'layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { %s } }'
SCORES = 'layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 3 } }'
NET = CONV % "num_output: 2 kernel_size: 3" + SCORES
DATABASE = 'layer { name: "d" type: "Data" top: "data" top: "label" data_param { source: "x" batch_size: 64 } }'


def read(text: str, image: tuple[int, int, int] | None = (1, 8, 8)) -> Graph:
    return network(text.encode(), file="net.prototxt", name="net", image_size=image).graph


@pytest.mark.parametrize(
    "begin", ['input: "data"', DATABASE, "", 'input: "data" input_shape { dim: 1 dim: 3 dim: 5 dim: 5 }']
)
def test_a_given_size_stands_for_what_the_file_says_or_leaves_open(begin: str) -> None:
    graph = read(begin + NET)
    assert graph.shapes[graph.input.name] == (1, 8, 8)
    assert graph.shapes["conv"] == (2, 6, 6)


def test_without_a_size_the_remedy_is_told() -> None:
    with pytest.raises(GraphError, match=r"line 1: 'd': nothing tells the size.*--input 3x224x224"):
        read(DATABASE + NET, None)


def test_a_convolution_at_the_end_gets_a_loss() -> None:
    graph = read(CONV % "num_output: 3 kernel_size: 8")
    assert [layer.op.kind for layer in graph.layers] == ["input", "conv", "flatten", "softmax_cross_entropy"]
    assert graph.losses[0].op == SoftmaxCrossEntropy()
    with pytest.raises(GraphError, match="global_pooling: true"):
        read(CONV % "num_output: 3 kernel_size: 3")


def test_ceil_mode_is_round_mode_by_another_name() -> None:
    pool = (
        'layer { name: "p" type: "Pooling" bottom: "data" top: "conv" pooling_param { kernel_size: 3 stride: 2 %s } }'
    )
    for option, rounds_up in (("ceil_mode: false", False), ("ceil_mode: true", True), ("", True)):
        assert read(pool % option + SCORES).layer("p").op == MaxPool(kernel=(3, 3), stride=(2, 2), ceil_mode=rounds_up)


def test_activations_and_products() -> None:
    text = (
        CONV % "num_output: 2 kernel_size: 3"
        + 'layer { name: "s" type: "Sigmoid" bottom: "conv" top: "s" }'
        + 'layer { name: "t" type: "TanH" bottom: "conv" top: "t" }'
        + 'layer { name: "m" type: "Eltwise" bottom: "s" bottom: "t" top: "m" eltwise_param { operation: PROD } }'
        + SCORES.replace('bottom: "conv"', 'bottom: "m"')
    )
    graph = read(text)
    assert [graph.layer(name).op.kind for name in ("s", "t", "m")] == ["sigmoid", "tanh", Multiply.kind]


def test_a_model_that_has_its_size_takes_no_other() -> None:
    with pytest.raises(UsageError, match="--input: cifarnet has its own size"):
        load_model("cifarnet", image=(3, 8, 8))
