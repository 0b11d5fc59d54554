"""What files of other people have: no size of images, ceil_mode, a convolution at the end, slices, gates, types of
other Caffes; and what they are told where the graph cannot have it."""

from __future__ import annotations

import pytest

from deepstone.errors import GraphError, UsageError
from deepstone.exchange.load import load_model
from deepstone.graph.graph import Graph
from deepstone.graph.ops import Add, Conv, Flatten, MaxPool, Multiply, Shuffle, Slice, SoftmaxCrossEntropy
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


def test_the_batch_stays_the_file_s_own() -> None:
    assert network((DATABASE + NET).encode(), file="net.prototxt", name="net", image_size=(1, 8, 8)).batch == 64


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


SIX = CONV % "num_output: 6 kernel_size: 3"


def sliced(points: str, *tops: str) -> str:
    given = " ".join(f'top: "{top}"' for top in tops)
    return f'layer {{ name: "s" type: "Slice" bottom: "conv" {given} slice_param {{ {points} }} }}'


def ended(*bottoms: str) -> str:
    return "".join(SCORES.replace('"ip"', f'"ip {name}"').replace('"conv"', f'"{name}"') for name in bottoms)


@pytest.mark.parametrize(
    ("points", "tops", "parts"),
    [
        ("slice_point: 4", ("a", "b"), [(0, 4), (4, 2)]),
        ("slice_point: 1 slice_point: 3 axis: 1", ("a", "b", "c"), [(0, 1), (1, 2), (3, 3)]),
        ("", ("a", "b", "c"), [(0, 2), (2, 2), (4, 2)]),
        ("slice_dim: 1", ("a", "b"), [(0, 3), (3, 3)]),
    ],
)
def test_a_slice_is_a_layer_for_each_top(points: str, tops: tuple[str, ...], parts: list[tuple[int, int]]) -> None:
    graph = read(SIX + sliced(points, *tops) + ended(*tops))
    for top, (first, channels) in zip(tops, parts, strict=True):
        assert graph.layer(f"s/{top}").op == Slice(first=first, channels=channels)
        assert graph.layer(f"ip {top}/flatten" if f"ip {top}/flatten" in graph.shapes else f"s/{top}/flatten")


def test_a_slice_with_one_top_is_its_input() -> None:
    graph = read(SIX + sliced("", "a") + ended("a"))
    assert [layer.op.kind for layer in graph.layers][:3] == ["input", "conv", "flatten"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (sliced("slice_point: 9", "a", "b"), "must grow and lie between 0 and its 6 channels, not 9"),
        (sliced("slice_point: 4 slice_point: 2", "a", "b", "c"), "must grow"),
        (sliced("slice_point: 1", "a", "b", "c"), "3 tops need 2, not 1"),
        (sliced("axis: 2", "a", "b"), "axis: only 1"),
        (sliced("", "a", "b", "c", "d"), "6 channels cannot be split into 4 equal parts"),
    ],
)
def test_a_slice_that_does_not_fit(text: str, told: str) -> None:
    with pytest.raises(GraphError, match=f"line 1: layer 's': .*{told}"):
        read(SIX + text + ended("a"))


def test_channels_are_shuffled_and_depthwise_convolutions_read() -> None:
    depthwise = "convolution_param { num_output: 6 kernel_size: 3 bias_term: false }"
    text = (
        SIX
        + 'layer { name: "s" type: "ShuffleChannel" bottom: "conv" top: "s" shuffle_channel_param { group: 3 } }'
        + f'layer {{ name: "d" type: "ConvolutionDepthwise" bottom: "s" top: "d" {depthwise} }}'
        + f'layer {{ name: "e" type: "DepthwiseConvolution" bottom: "s" top: "e" {depthwise} }}'
        + ended("d", "e")
    )
    graph = read(text)
    assert graph.layer("s").op == Shuffle(groups=3)
    assert graph.layer("d").op == Conv(channels=6, kernel=(3, 3), groups=6, bias=False)
    assert graph.layer("e").op == graph.layer("d").op


GATE = (
    SIX
    + 'layer { name: "pool" type: "Pooling" bottom: "conv" top: "p" pooling_param { pool: AVE global_pooling: true } }'
    + 'layer { name: "gate" type: "Sigmoid" bottom: "p" top: "g" }'
)


def test_squeeze_and_excite_as_its_authors_write_it() -> None:
    """Axpy is a · x + y. Scale with two bottoms is a product, after a Reshape that makes the factors flat."""
    graph = read(
        GATE + 'layer { name: "x" type: "Axpy" bottom: "g" bottom: "conv" bottom: "conv" top: "x" }' + ended("x")
    )
    assert (graph.layer("x/product").op, graph.layer("x/product").inputs) == (Multiply(), ("gate", "conv"))
    assert (graph.layer("x").op, graph.layer("x").inputs) == (Add(), ("x/product", "conv"))
    scale = 'layer { name: "x" type: "Scale" bottom: "conv" bottom: "r" top: "x" scale_param { axis: 0 } }'
    for shape in ("dim: 0 dim: 0", "dim: 0 dim: -1", "dim: 0 dim: 6"):
        flat = f'layer {{ name: "r" type: "Reshape" bottom: "g" top: "r" reshape_param {{ shape {{ {shape} }} }} }}'
        graph = read(GATE + flat + scale + ended("x"))
        assert graph.layer("r").op == Flatten()
        assert (graph.layer("x").op, graph.layer("x").inputs) == (Multiply(), ("conv", "r"))


@pytest.mark.parametrize("shape", ["dim: 0 dim: 2 dim: 3", "dim: 0 dim: 0", "dim: -1 dim: 6"])
def test_other_reshapes_are_refused_with_what_is_supported(shape: str) -> None:
    text = f'layer {{ name: "r" type: "Reshape" bottom: "conv" top: "r" reshape_param {{ shape {{ {shape} }} }} }}'
    with pytest.raises(GraphError, match=r"line 1: layer 'r': turns .* only making each image flat"):
        read(SIX + text + ended("r"))


def test_where_images_come_from_does_not_matter_if_their_size_is_given() -> None:
    python = 'layer { name: "d" type: "Python" top: "data" top: "label" python_param { module: "m" layer: "L" } }'
    loss = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" }'
    assert read(python + NET + loss).shapes["d"] == (1, 8, 8)
    with pytest.raises(GraphError, match=r"Python.*line 1.*say their size with --input"):
        read(python + NET + loss, None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('layer { name: "x" type: "ContrastiveLoss" bottom: "conv" top: "x" }', "put a SoftmaxWithLoss in its place"),
        ('layer { name: "x" type: "Deconvolution" bottom: "conv" top: "x" }', "one label per image"),
        ('layer { name: "x" type: "Wonder" bottom: "conv" top: "x" }', "FILE.py:FUNCTION"),
        ('layer { name: "x" type: "Softmax" bottom: "conv" top: "x" }', "--input a size that leaves one pixel"),
        ('layer { name: "x" type: "BatchNorm" bottom: "ip conv" top: "x" }', "take it and its Scale away"),
        (
            'layer { name: "x" type: "Slice" bottom: "ip conv" top: "a" top: "b" }',
            "only channels of images can be sliced",
        ),
    ],
)
def test_what_a_graph_cannot_have_is_refused_with_the_remedy(text: str, told: str) -> None:
    with pytest.raises(GraphError, match="line 2") as caught:
        read(SIX + ended("conv") + "\n" + text)
    assert told in str(caught.value)


def test_shared_weights_are_told_once_for_each_layer() -> None:
    shared = (CONV % "num_output: 2 kernel_size: 3")[:-1] + 'param { name: "w" } param { name: "b" } }\n'
    first, second = (shared.replace('"conv"', f'"{name}"') for name in ("one", "two"))
    with pytest.raises(GraphError) as caught:
        read(first + second + ended("one", "two"))
    assert "line 2: layer 'two': shares its weights (w, b) with layer 'one'" in str(caught.value)
    assert "take the names" in str(caught.value)


def test_a_model_that_has_its_size_takes_no_other() -> None:
    with pytest.raises(UsageError, match="--input: cifarnet has its own size"):
        load_model("cifarnet", image=(3, 8, 8))
