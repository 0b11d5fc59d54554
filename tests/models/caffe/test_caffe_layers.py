"""What Caffe's layers mean: parameters, blobs, phases, inputs, and pooling to the last window."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from caffe_nets import TINY_DATA, conv, dense, graph_of, imported, layer, loss, pool, tiny
from depth import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from deepstone.errors import GraphError
from deepstone.graph.ops import (
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    GlobalPool,
    Lrn,
    MaxPool,
    Op,
    SoftmaxCrossEntropy,
)
from deepstone.graph.reference import forward


def op_of(kind: str, rest: str) -> Op:
    return graph_of(tiny(layer(kind, "x", "data", "x", rest), end="x")).layer("x").op


@pytest.mark.parametrize(
    ("kind", "rest", "meant"),
    [
        ("Convolution", "convolution_param { num_output: 4 kernel_size: 3 }", Conv(channels=4, kernel=(3, 3))),
        (
            "Convolution",
            "convolution_param { num_output: 0x6 kernel_h: 3 kernel_w: 1 stride_h: 2 stride_w: 3 pad_h: 1 pad_w: 0 "
            "group: 3 bias_term: false dilation: 2 }",
            Conv(
                channels=6,
                kernel=(3, 1),
                stride=(2, 3),
                pad=(1, 1, 0, 0),
                groups=3,
                bias=False,
                dilation=(2, 2),
            ),
        ),
        (
            "Convolution",
            "convolution_param { num_output: 4 kernel_size: [3, 1] stride: 1 stride: 2 pad: 2 pad: 0 engine: CUDNN }",
            Conv(channels=4, kernel=(3, 1), stride=(1, 2), pad=(2, 2, 0, 0)),
        ),
        ("Pooling", "pooling_param { kernel_size: 2 }", MaxPool(kernel=(2, 2), stride=(1, 1), ceil_mode=True)),
        (
            "Pooling",
            "pooling_param { pool: AVE kernel_h: 3 kernel_w: 2 stride: 2 pad_h: 1 pad_w: 0 }",
            AveragePool(kernel=(3, 2), stride=(2, 2), pad=(1, 1, 0, 0), ceil_mode=True, count_pad=True),
        ),
        (
            "Pooling",
            "pooling_param { pool: 0 kernel_size: 3 stride: 2 round_mode: FLOOR }",
            MaxPool(kernel=(3, 3), stride=(2, 2), ceil_mode=False),
        ),
        ("Pooling", "pooling_param { pool: AVE global_pooling: true }", GlobalPool()),
        ("Pooling", "pooling_param { pool: MAX global_pooling: true }", MaxPool(kernel=(8, 8), stride=(1, 1))),
        ("InnerProduct", "inner_product_param { num_output: 7 bias_term: false }", Dense(features=7, bias=False)),
        ("LRN", "", Lrn(size=5, alpha=1.0, beta=0.75, k=1.0)),
        (
            "LRN",
            "lrn_param { local_size: 3 alpha: 5e-05 beta: .5f k: 2 norm_region: ACROSS_CHANNELS }",
            Lrn(size=3, alpha=5e-5, beta=0.5, k=2.0),
        ),
        ("LRN", "lrn_param { norm_region: WITHIN_CHANNEL }", Lrn(size=5, alpha=1.0, within_channel=True)),
        ("Dropout", "dropout_param { dropout_ratio: 0.7 }", Dropout(rate=0.7)),
        ("Dropout", "", Dropout(rate=0.5)),
    ],
)
def test_parameters(kind: str, rest: str, meant: Op) -> None:
    assert op_of(kind, rest) == meant


SCALE = layer("Scale", "x_scale", "x", rest="scale_param { bias_term: true }")


@pytest.mark.parametrize(
    ("rest", "meant"),
    [
        ("", BatchNorm(epsilon=1e-5, momentum=0.001)),
        ("batch_norm_param { eps: 0.001 moving_average_fraction: 0.9 }", BatchNorm(epsilon=0.001, momentum=0.1)),
    ],
)
def test_batch_norm_and_scale_are_one_layer(rest: str, meant: BatchNorm) -> None:
    graph = graph_of(tiny(layer("BatchNorm", "x", "data", "x", rest), SCALE, end="x"))
    assert graph.layer("x").op == meant
    assert [each.name for each in graph.layers] == ["data", "x", "flatten", "fc", "loss"]
    assert graph.parameters(graph.layer("x")) == {"weight": (3,), "bias": (3,)}


def test_layers_in_place_are_read_by_who_comes_later() -> None:
    graph = graph_of(
        tiny(
            conv("c", "data", 4, 1),
            pool("before", "c", "MAX", "kernel_size: 1"),
            layer("ReLU", "r", "c"),
            layer("Dropout", "d", "c"),
            pool("after", "c", "MAX", "kernel_size: 1"),
            layer("Eltwise", "sum", ["before", "after"], "sum", "eltwise_param { operation: SUM coeff: 1 coeff: 1.0 }"),
            end="sum",
        )
    )
    inputs = {each.name: each.inputs for each in graph.layers}
    assert inputs["before"] == ("c",)
    assert (inputs["r"], inputs["d"], inputs["after"]) == (("c",), ("r",), ("d",))
    assert inputs["sum"] == ("before", "after")


def test_split_and_what_is_flat_already_need_no_layer() -> None:
    graph = graph_of(
        [
            TINY_DATA,
            'layer { name: "split" type: "Split" bottom: "data" top: "a" top: "b" }',
            layer("Concat", "join", ["a", "b"], "join", "concat_param { axis: 1 }"),
            layer("Flatten", "flat", "join", "flat"),
            layer("Flatten", "flatter", "flat", "flatter"),
            dense("fc", "flatter", 5),
            loss("loss", "fc"),
        ]
    )
    assert [each.name for each in graph.layers] == ["data", "join", "flat", "fc", "loss"]
    assert graph.layer("join").inputs == ("data", "data")
    assert graph.shapes["flat"] == (6 * 64,)


def test_one_flatten_serves_all_who_read_it() -> None:
    graph = graph_of(
        tiny(conv("c", "data", 4, 1), dense("side", "c", 5), loss("side_loss", "side", "loss_weight: 0.5"), end="c")
    )
    assert graph.layer("side").inputs == graph.layer("fc").inputs == ("flatten",)
    assert graph.layer("side_loss").op == SoftmaxCrossEntropy(weight=0.5)


def test_names_of_flatten_layers_give_way() -> None:
    graph = graph_of(tiny(conv("flatten", "data", 4, 1), end="flatten"))
    assert graph.layer("fc").inputs == ("flatten/flatten",)


@pytest.mark.parametrize(
    ("end", "last", "kind"),
    [
        ([layer("Softmax", "prob", "fc", "prob")], "prob", "softmax_cross_entropy"),
        ([], "loss", "softmax_cross_entropy"),
        ([loss("mine", "fc"), layer("Softmax", "prob", "fc", "prob")], "mine", "softmax_cross_entropy"),
        ([loss("mine", "fc"), layer("Accuracy", "top1", ["fc", "label"], "top1")], "mine", "softmax_cross_entropy"),
        (
            [loss("mine", "fc"), 'layer { name: "hush" type: "Silence" bottom: "label" }'],
            "mine",
            "softmax_cross_entropy",
        ),
    ],
)
def test_a_network_ends_in_a_loss(end: list[str], last: str, kind: str) -> None:
    graph = graph_of([TINY_DATA, dense("fc", "data", 5), *end])
    assert (graph.layers[-1].name, graph.layers[-1].op.kind) == (last, kind)
    assert len(graph) == 4


def test_scores_that_are_one_pixel_are_flattened_for_the_loss() -> None:
    graph = graph_of([TINY_DATA, conv("scores", "data", 10, 8), loss("loss", "scores")])
    assert graph.layer("loss").inputs == ("flatten",)
    assert graph.classes == 10


# ---- inputs

HEAD = "\n".join([dense("fc", "data", 5), loss("loss", "fc")])


@pytest.mark.parametrize(
    ("data", "shape", "batch"),
    [
        ('input: "data" input_dim: 7 input_dim: 1 input_dim: 5 input_dim: 6', (1, 5, 6), 7),
        ('input: "data" input_shape { dim: [2, 3, 4, 5] }', (3, 4, 5), 2),
        (
            'input: "label" input: "data" input_shape { dim: 2 } input_shape { dim: 2 dim: 3 dim: 4 dim: 5 }',
            (3, 4, 5),
            2,
        ),
        (
            'layer { name: "data" type: "Data" top: "data" top: "label" transform_param { crop_size: 9 scale: 0.1 }'
            ' data_param { source: "x" batch_size: 64 backend: LMDB } }',
            (3, 9, 9),
            64,
        ),
        (
            'layer { name: "data" type: "Data" top: "data" top: "label" transform_param { crop_size: 9 force_gray: 1 }'
            " data_param { batch_size: 64 } }",
            (1, 9, 9),
            64,
        ),
        (
            'layers { name: "data" type: DATA top: "data" top: "label" data_param { crop_size: 9 batch_size: 4 } }',
            (3, 9, 9),
            4,
        ),
        (
            'layer { name: "data" type: "ImageData" top: "data" top: "label" image_data_param { source: "list.txt"'
            " batch_size: 3 new_height: 20 new_width: 30 is_color: false } }",
            (1, 20, 30),
            3,
        ),
        (
            'layer { name: "data" type: "MemoryData" top: "data" top: "label" memory_data_param { batch_size: 3'
            " channels: 2 height: 20 width: 30 } }",
            (2, 20, 30),
            3,
        ),
        (
            'layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param { num: 3 num: 3'
            " channels: 2 channels: 1 height: 20 height: 1 width: 30 width: 1 } }",
            (2, 20, 30),
            3,
        ),
        (
            'layer { name: "data" type: "DummyData" top: "data" dummy_data_param { data_filler { type: "gaussian" }'
            ' shape { dim: 3 dim: 2 dim: 4 dim: 4 } } } layer { name: "l" type: "DummyData" top: "label" '
            "dummy_data_param { shape { dim: 3 } } }",
            (2, 4, 4),
            3,
        ),
    ],
)
def test_where_images_come_from(data: str, shape: tuple[int, ...], batch: int) -> None:
    head = HEAD
    if data.startswith("layers"):
        head = HEAD.replace("layer {", "layers {").replace('"InnerProduct"', "INNER_PRODUCT")
        head = head.replace('"SoftmaxWithLoss"', "SOFTMAX_LOSS")
    elif data.startswith("input") and "label" not in data:
        head = dense("fc", "data", 5)
    found = imported(f"{data}\n{head}")
    assert found.graph.shapes["data"] == shape
    assert found.graph.input.name == "data"
    assert found.batch == batch


@pytest.mark.parametrize(
    "data",
    [
        'layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "x" batch_size: 64 } }',
        'layer { name: "data" type: "HDF5Data" top: "data" top: "label" hdf5_data_param { batch_size: 8 } }',
        'layer { name: "data" type: "ImageData" top: "data" top: "label" image_data_param { batch_size: 8 } }',
    ],
)
def test_when_nothing_says_the_size(data: str) -> None:
    with pytest.raises(GraphError, match=r"line 1: 'data': nothing tells the size.*type: \"Input\"") as caught:
        imported(f"{data}\n{HEAD}")
    assert "crop_size" in str(caught.value)


# ---- phases


@pytest.mark.parametrize(
    ("rule", "train", "test"),
    [
        ("", True, True),
        ("include { phase: TRAIN }", True, False),
        ("include: { phase: TEST }", False, True),
        ("exclude { phase: TEST }", True, False),
        ("include { phase: TRAIN } include { phase: TEST }", True, True),
        ("include { phase: TRAIN stage: 'big' }", False, False),
        ("include { phase: TRAIN not_stage: 'big' }", True, False),
        ("exclude { stage: 'big' }", True, True),
        ("include { stage: 'small' }", True, True),
        ("include { min_level: 1 }", False, False),
        ("include { max_level: 0 min_level: -3 }", True, True),
    ],
)
def test_rules(rule: str, train: bool, test: bool) -> None:
    text = 'state { stage: "small" }\n' + tiny(layer("ReLU", "r", "data", rest=rule))
    for phase, there in (("TRAIN", train), ("TEST", test)):
        assert ("r" in graph_of(text, phase).shapes) is there


def test_what_is_not_there_in_a_phase_is_not_judged() -> None:
    text = tiny(layer("Crop", "x", "data", "x", "include { phase: TEST } crop_param { axis: 2 }"))
    assert graph_of(text)
    with pytest.raises(GraphError, match="Crop"):
        graph_of(text, "TEST")


# ---- pooling, as Caffe's own loops do it


def caffe_side(size: int, kernel: int, stride: int, pad: int) -> list[tuple[int, int, int]]:
    """For each window of one side: its first place, the one after its last, and the length that the average counts."""
    count = math.ceil((size + 2 * pad - kernel) / stride) + 1
    if pad and (count - 1) * stride >= size + pad:
        count -= 1
    windows: list[tuple[int, int, int]] = []
    for number in range(count):
        first = number * stride - pad
        last = min(first + kernel, size + pad)
        windows.append((max(first, 0), min(last, size), last - first))
    return windows


@examples(100)
@given(
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 5),
    pad=st.integers(0, 3),
    method=st.sampled_from(["MAX", "AVE"]),
)
def test_pools_are_caffe_s(size: tuple[int, int], kernel: int, stride: int, pad: int, method: str) -> None:
    assume(pad < kernel)
    assume(all(side + 2 * pad >= kernel for side in size))
    rows, columns = (caffe_side(side, kernel, stride, pad) for side in size)
    text = [
        f'input: "data" input_shape {{ dim: [1, 1, {size[0]}, {size[1]}] }}',
        pool("pool", "data", method, f"kernel_size: {kernel} stride: {stride} pad: {pad}"),
        dense("fc", "pool", 2),
    ]
    if any(first >= last for first, last, _ in (*rows, *columns)):
        with pytest.raises(GraphError, match="outside the image"):
            graph_of(text)
        return
    graph = graph_of(text)
    image = np.random.default_rng(0).standard_normal(size)
    wanted = np.empty((len(rows), len(columns)))
    for (i, row), (j, column) in product(enumerate(rows), enumerate(columns)):
        window = image[row[0] : row[1], column[0] : column[1]]
        wanted[i, j] = window.max() if method == "MAX" else window.sum() / (row[2] * column[2])
    found = forward(graph.layer("pool").op, [image[None, None]]).value
    np.testing.assert_allclose(found[0, 0], wanted, rtol=1e-12)
