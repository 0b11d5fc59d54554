"""What an ONNX file becomes: layer by layer, and with the whole of what other exporters write around them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from depth import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx_kit import CLASSES, IMAGE, model, node, read_model, with_head

from deepstone.graph import ops
from deepstone.graph.graph import Graph


def kinds(graph: Graph) -> list[str]:
    return [layer.op.kind for layer in graph.layers]


def first_op(graph: Graph) -> ops.Op:
    return graph.layers[1].op


def test_a_convolution_with_all_it_can_have() -> None:
    conv = node("Conv", "x k b", "c", name="/body/conv", strides=[2, 1], pads=[1, 0, 2, 3], dilations=[1, 2], group=2)
    graph = with_head(conv, source="c", features=6 * 5 * 9, arrays={"k": (6, 2, 3, 2), "b": (6,)})
    assert graph.layers[1].name == "body/conv"
    assert first_op(graph) == ops.Conv(
        channels=6, kernel=(3, 2), stride=(2, 1), pad=(1, 2, 0, 3), dilation=(1, 2), groups=2
    )
    assert kinds(graph) == ["input", "conv", "flatten", "dense", "softmax_cross_entropy"]
    assert graph.name == "net"


def test_pools() -> None:
    size: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 0, 1]}
    highest = with_head(node("MaxPool", "x", "p", ceil_mode=1, **size), source="p", features=4 * 5 * 4)
    assert first_op(highest) == ops.MaxPool(kernel=(3, 2), stride=(2, 2), pad=(1, 0, 0, 1), ceil_mode=True)
    mean = with_head(node("AveragePool", "x", "p", **size), source="p", features=4 * 4 * 4)
    assert first_op(mean) == ops.AveragePool(kernel=(3, 2), stride=(2, 2), pad=(1, 0, 0, 1), count_pad=False)
    padded = with_head(node("AveragePool", "x", "p", count_include_pad=1, **size), source="p", features=4 * 4 * 4)
    assert first_op(padded) == ops.AveragePool(kernel=(3, 2), stride=(2, 2), pad=(1, 0, 0, 1), count_pad=True)


def test_strides_left_out_are_one() -> None:
    pool = with_head(node("MaxPool", "x", "p", kernel_shape=[2, 2]), source="p", features=4 * 8 * 7)
    assert first_op(pool) == ops.MaxPool(kernel=(2, 2), stride=(1, 1))


@examples(60)
@given(data=st.data())
def test_automatic_padding_gives_the_shapes_that_onnx_infers(data: st.DataObject) -> None:
    sides = st.integers(1, 3)
    op = data.draw(st.sampled_from(["Conv", "MaxPool", "AveragePool"]))
    kernel = data.draw(st.tuples(sides, sides))
    attributes: dict[str, Any] = {
        "auto_pad": data.draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"])),
        "strides": data.draw(st.tuples(sides, sides)),
        "kernel_shape": kernel,
    }
    if op == "Conv":
        attributes["dilations"] = data.draw(st.tuples(sides, sides))
    arrays = {"k": (2, 4, *kernel)} if op == "Conv" else {}
    window = node(op, "x k" if op == "Conv" else "x", "y", **attributes)
    inferred = onnx.shape_inference.infer_shapes(onnx.load_from_string(model(window, arrays=arrays)))
    shape = tuple(side.dim_value for side in inferred.graph.output[0].type.tensor_type.shape.dim)[1:]
    assume(len(shape) == 3 and min(shape) > 0)
    graph = with_head(
        node(op, "x k" if op == "Conv" else "x", "c", **attributes),
        source="c",
        features=math.prod(shape),
        arrays=arrays,
    )
    assert graph.shapes[graph.layers[1].name] == shape


def test_same_lower_puts_the_odd_pixel_before_the_image() -> None:
    pads = {}
    for how in ("SAME_UPPER", "SAME_LOWER"):
        graph = with_head(
            node("MaxPool", "x", "p", kernel_shape=[2, 2], auto_pad=how), source="p", features=math.prod(IMAGE)
        )
        pads[how] = first_op(graph).pad
    assert pads == {"SAME_UPPER": (0, 1, 0, 1), "SAME_LOWER": (1, 0, 1, 0)}


def test_batch_norm_turns_momentum_round() -> None:
    """Theirs is the share of the old statistics, ours that of the new batch."""
    norm = node("BatchNormalization", "x s b m v", "n", epsilon=1e-3, momentum=0.7)
    graph = with_head(norm, source="n", features=math.prod(IMAGE), arrays=dict.fromkeys("sbmv", (4,)))
    assert first_op(graph) == ops.BatchNorm(epsilon=1e-3, momentum=0.3)
    plain = node("BatchNormalization", "x s b m v", "n")
    graph = with_head(plain, source="n", features=math.prod(IMAGE), arrays=dict.fromkeys("sbmv", (4,)))
    assert first_op(graph) == ops.BatchNorm(epsilon=1e-5, momentum=0.1)


def test_lrn_and_dropout() -> None:
    lrn = node("LRN", "x", "n", size=3, alpha=2e-4, beta=0.6, bias=2.0)
    dropped = node("Dropout", "n r", "d")
    graph = with_head(
        lrn, dropped, source="d", features=math.prod(IMAGE), arrays={"r": np.array(0.3, dtype=np.float32)}
    )
    assert [layer.op for layer in graph.layers[1:3]] == [
        ops.Lrn(size=3, alpha=2e-4, beta=0.6, k=2.0),
        ops.Dropout(rate=0.3),
    ]


def test_dropout_of_old_files_has_its_ratio_as_an_attribute() -> None:
    graph = read_model(
        node("Dropout", "x", "d mask", ratio=0.25),
        node("Flatten", "d", "flat"),
        node("Gemm", "flat w", "y", transB=1),
        arrays={"w": (CLASSES, math.prod(IMAGE))},
        opset=10,
    )
    assert first_op(graph) == ops.Dropout(rate=0.25)


def test_dense_layers_in_all_their_forms() -> None:
    features = math.prod(IMAGE)
    graph = read_model(
        node("Flatten", "x", "f"),
        node("Gemm", "f a b", "g", transB=1, name="across"),
        node("Gemm", "g c", "h", name="along"),
        node("MatMul", "h d", "i", name="product"),
        node("Add", "i e", "j", name="bias of product"),
        node("MatMul", "j w", "y", name="bare"),
        arrays={"a": (7, features), "b": (7,), "c": (7, 6), "d": (6, 6), "e": (6,), "w": (6, CLASSES)},
    )
    dense = {layer.name: layer.op for layer in graph.layers if isinstance(layer.op, ops.Dense)}
    assert dense == {
        "across": ops.Dense(features=7),
        "along": ops.Dense(features=6, bias=False),
        "product": ops.Dense(features=6, bias=True),
        "bare": ops.Dense(features=CLASSES, bias=False),
    }


def test_a_bias_may_stand_on_either_side_and_belong_to_a_convolution() -> None:
    graph = with_head(
        node("Conv", "x k", "c"),
        node("Add", "b c", "d"),
        source="d",
        features=2 * 9 * 8,
        arrays={"k": (2, 4, 1, 1), "b": (1, 2, 1, 1)},
    )
    assert first_op(graph) == ops.Conv(channels=2, kernel=(1, 1), bias=True)


def test_branches_meet() -> None:
    graph = with_head(
        node("Relu", "x", "r"),
        node("Add", "x r", "a", name="two"),
        node("Sum", "a r x", "s", name="three"),
        node("Concat", "s a", "j", axis=1, name="join"),
        source="j",
        features=2 * math.prod(IMAGE),
    )
    inputs = {layer.name: layer.inputs for layer in graph.layers}
    assert (inputs["two"], inputs["three"]) == (("x", "Relu1"), ("two", "Relu1", "x"))
    assert graph.shapes["join"] == (8, 9, 8)


FLAT = math.prod(IMAGE)
SIX = {"low": np.array(0, dtype=np.float32), "high": np.array(6, dtype=np.float32)}


@pytest.mark.parametrize(
    ("nodes", "arrays", "op"),
    [
        ([node("Sigmoid", "x", "a")], {}, ops.Sigmoid()),
        ([node("Tanh", "x", "a")], {}, ops.Tanh()),
        ([node("HardSwish", "x", "a")], {}, ops.HardSwish()),
        ([node("HardSigmoid", "x", "a", alpha=1 / 6)], {}, ops.HardSigmoid()),
        ([node("Clip", "x low high", "a")], SIX, ops.Clip()),
        ([node("Clip", "x low", "a")], SIX, ops.Relu()),
        ([node("Clip", "x", "a", min=-1.0, max=2.5)], {}, ops.Clip(low=-1.0, high=2.5)),
        ([node("Sigmoid", "x", "s"), node("Mul", "x s", "a")], {}, ops.Silu()),
        ([node("Sigmoid", "x", "s"), node("Mul", "s x", "a")], {}, ops.Silu()),
        ([node("HardSigmoid", "x", "s", alpha=1 / 6), node("Mul", "x s", "a")], {}, ops.HardSwish()),
    ],
)
def test_activations(nodes: list[Any], arrays: dict[str, Any], op: ops.Op) -> None:
    graph = with_head(*nodes, source="a", features=FLAT, arrays=arrays)
    assert [layer.op for layer in graph.layers[1:-3]] == [op]


def test_a_sigmoid_that_others_read_stays_a_layer() -> None:
    nodes = [node("Sigmoid", "x", "s"), node("Mul", "x s", "p"), node("Add", "p s", "a")]
    graph = with_head(*nodes, source="a", features=FLAT)
    assert kinds(graph)[1:4] == ["sigmoid", "multiply", "add"]


@pytest.mark.parametrize(
    "spread",
    [
        [node("Reshape", "f s", "g", allowzero=1)],
        [node("Unsqueeze", "f axes", "g")],
        [node("Unsqueeze", "f axis", "h"), node("Unsqueeze", "h axis3", "g")],
        [node("Reshape", "f s", "h"), node("Shape", "x", "size"), node("Expand", "h size", "g")],
    ],
)
def test_every_way_to_a_gate_of_flat_numbers(spread: list[Any]) -> None:
    """Squeeze-and-excite with dense layers: the gate is one number per channel."""
    arrays = {"d": (4, 4), "s": np.array([-1, 4, 1, 1]), "axes": np.array([2, 3]), "axis": np.array([2])}
    graph = with_head(
        node("ReduceMean", "x", "m", axes=[2, 3], keepdims=0),
        node("Gemm", "m d", "e"),
        node("Sigmoid", "e", "f"),
        *spread,
        node("Mul", "x g", "a", name="scaled"),
        source="a",
        features=FLAT,
        arrays={**arrays, "axis3": np.array([3])},
    )
    assert graph.layer("scaled").op == ops.Multiply()
    assert graph.shapes["scaled"] == IMAGE
    assert [graph.shapes[name] for name in graph.layer("scaled").inputs] == [IMAGE, (4,)]


def test_a_gate_of_convolutions() -> None:
    nodes = [node("GlobalAveragePool", "x", "m"), node("Conv", "m k", "c"), node("Sigmoid", "c", "g")]
    graph = with_head(
        *nodes, node("Mul", "g x", "a", name="scaled"), source="a", features=FLAT, arrays={"k": (4, 4, 1, 1)}
    )
    assert [graph.shapes[name] for name in graph.layer("scaled").inputs] == [(4, 1, 1), IMAGE]


def test_statistics_of_a_batch_norm_in_training_are_no_outputs_of_the_network() -> None:
    graph = read_model(
        node("BatchNormalization", "x s b m v", "n mean variance", training_mode=1),
        node("Flatten", "n", "flat"),
        node("Gemm", "flat w", "y", transB=1),
        arrays={**dict.fromkeys("sbmv", (4,)), "w": (CLASSES, FLAT)},
        outputs=("y", "mean", "variance"),
    )
    assert kinds(graph) == ["input", "batch_norm", "flatten", "dense", "softmax_cross_entropy"]


@pytest.mark.parametrize(
    ("split", "arrays", "parts"),
    [
        (node("Split", "x", "p q", axis=1), {}, [(0, 2), (2, 2)]),
        (node("Split", "x", "p q", axis=1, num_outputs=2), {}, [(0, 2), (2, 2)]),
        (node("Split", "x", "p q", axis=-3, split=[1, 3]), {}, [(0, 1), (1, 3)]),
        (node("Split", "x sizes", "p q", axis=1), {"sizes": np.array([3, 1])}, [(0, 3), (3, 1)]),
        (node("Split", "x", "p q r", axis=1, split=[1, 1, 2]), {}, [(0, 1), (1, 1)]),  # nothing uses the last
    ],
)
def test_a_split_is_a_slice_for_each_output_that_is_used(
    split: Any, arrays: dict[str, Any], parts: list[tuple[int, int]]
) -> None:
    features = sum(channels for _, channels in parts) * IMAGE[1] * IMAGE[2]
    graph = with_head(split, node("Concat", "q p", "a", axis=1), source="a", features=features, arrays=arrays)
    slices = [layer.op for layer in graph.layers if isinstance(layer.op, ops.Slice)]
    assert slices == [ops.Slice(first=first, channels=channels) for first, channels in parts]


@pytest.mark.parametrize(
    ("nodes", "first", "channels"),
    [
        ([node("Slice", "x", "a", starts=[1], ends=[3], axes=[1])], 1, 2),
        ([node("Slice", "x one three one", "a")], 1, 2),
        ([node("Slice", "x two far one", "a")], 2, 2),
        ([node("Slice", "x last far minus", "a")], 3, 1),
        # Half of the channels, as exporters compute it.
        (
            [
                node("Shape", "x", "s"),
                node("Gather", "s one", "c"),
                node("Add", "c one", "more"),
                node("Div", "more two", "half"),
                node("Mul", "half one", "end"),
                node("Slice", "x zero end one", "a"),
            ],
            0,
            2,
        ),
    ],
)
def test_a_slice_of_channels(nodes: list[Any], first: int, channels: int) -> None:
    numbers = {"zero": 0, "one": 1, "two": 2, "three": 3, "far": 2**62, "last": -1, "minus": -3}
    arrays = {name: np.array([number]) for name, number in numbers.items()}
    graph = with_head(*nodes, source="a", features=channels * IMAGE[1] * IMAGE[2], arrays=arrays)
    assert [layer.op for layer in graph.layers][1] == ops.Slice(first=first, channels=channels)


@pytest.mark.parametrize(
    ("apart", "together"),
    [
        ([0, 2, 2, 9, 8], [0, 4, 9, 8]),
        ([-1, 2, 2, 9, 8], [-1, 4, 9, 8]),
        ([0, 2, -1, 9, 8], [0, -1, 9, 8]),
    ],
)
def test_a_channel_shuffle_is_one_layer(apart: list[int], together: list[int]) -> None:
    arrays = {"apart": np.array(apart), "together": np.array(together)}
    nodes = [
        node("Reshape", "x apart", "b"),
        node("Transpose", "b", "c", perm=[0, 2, 1, 3, 4]),
        node("Reshape", "c together", "a", name="shuffled"),
    ]
    graph = with_head(*nodes, source="a", features=FLAT, arrays=arrays)
    assert graph.layer("shuffled").op == ops.Shuffle(groups=2)
    assert kinds(graph)[1:3] == ["shuffle", "flatten"]


def test_a_join_of_one() -> None:
    graph = with_head(node("Concat", "x", "j", axis=1), source="j", features=FLAT)
    assert kinds(graph) == ["input", "flatten", "dense", "softmax_cross_entropy"]


@pytest.mark.parametrize(
    ("nodes", "arrays"),
    [
        ([node("Reshape", "x s", "flat")], {"s": [-1, FLAT]}),
        ([node("Reshape", "x s", "flat")], {"s": [0, -1]}),
        ([node("Reshape", "x s", "flat", allowzero=1)], {"s": [-1, FLAT]}),
        ([node("Reshape", "x s", "flat")], {"s": [3, -1]}),  # the batch with which it was exported
        ([node("Reshape", "x s", "i"), node("Flatten", "i", "flat")], {"s": [0, 4, 9, 8]}),
        ([node("Flatten", "x", "i", axis=-3), node("Flatten", "i", "flat")], {}),
        (  # x.view(x.size(0), -1) as torch writes it
            [
                node("Shape", "x", "shape"),
                node("Constant", "", "zero", value_int=0),
                node("Gather", "shape zero", "batch"),
                node("Unsqueeze", "batch axes", "rows"),
                node("Concat", "rows rest", "s", axis=0),
                node("Reshape", "x s", "flat"),
            ],
            {"axes": [0], "rest": [-1]},
        ),
        (
            [
                node("Shape", "x", "shape"),
                node("Slice", "shape from to", "rows"),
                node("Cast", "rows", "rows64", to=7),
                node("Concat", "rows64 rest", "s", axis=0),
                node("Reshape", "x s", "flat"),
            ],
            {"from": [0], "to": [1], "rest": [-1]},
        ),
    ],
)
def test_every_way_to_make_an_image_flat(nodes: list[Any], arrays: dict[str, Any]) -> None:
    graph = read_model(
        *nodes,
        node("Gemm", "flat w", "y", transB=1),
        arrays={**{name: np.array(value, dtype=np.int64) for name, value in arrays.items()}, "w": (CLASSES, FLAT)},
        inputs={"x": (3, *IMAGE)},
    )
    assert kinds(graph) == ["input", "flatten", "dense", "softmax_cross_entropy"]


@pytest.mark.parametrize(
    ("nodes", "arrays"),
    [
        ([node("GlobalAveragePool", "x", "p"), node("Flatten", "p", "flat")], {}),
        ([node("GlobalAveragePool", "x", "p"), node("Squeeze", "p axes", "flat")], {"axes": [2, 3]}),
        ([node("ReduceMean", "x", "p", axes=[-2, -1], keepdims=1), node("Flatten", "p", "flat")], {}),
        ([node("ReduceMean", "x", "flat", axes=[2, 3], keepdims=0)], {}),
    ],
)
def test_every_way_to_take_the_mean_of_an_image(nodes: list[Any], arrays: dict[str, Any]) -> None:
    graph = read_model(
        *nodes,
        node("Gemm", "flat w", "y", transB=1),
        arrays={**{name: np.array(value) for name, value in arrays.items()}, "w": (CLASSES, IMAGE[0])},
    )
    assert kinds(graph) == ["input", "global_pool", "flatten", "dense", "softmax_cross_entropy"]


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_at_the_end_is_the_loss(op: str) -> None:
    graph = read_model(
        node("Flatten", "x", "flat"),
        node("Gemm", "flat w", "z", transB=1, name="scores"),
        node(op, "z", "y", axis=-1),
        arrays={"w": (CLASSES, FLAT)},
    )
    assert graph.layers[-1].op == ops.SoftmaxCrossEntropy()
    assert graph.layers[-1].inputs == ("scores",)
    assert graph.classes == CLASSES


def test_several_outputs_have_a_loss_each() -> None:
    graph = read_model(
        node("Flatten", "x", "flat"),
        node("Gemm", "flat w", "y", transB=1),
        node("Gemm", "flat v", "side", transB=1),
        arrays={"w": (CLASSES, FLAT), "v": (CLASSES, FLAT)},
        outputs=("y", "side"),
    )
    assert [(loss.name, loss.inputs) for loss in graph.losses] == [("loss_y", ("Gemm2",)), ("loss_side", ("Gemm3",))]


def test_what_does_nothing_leaves_no_layer() -> None:
    graph = with_head(
        node("Identity", "x", "i"),
        node("Cast", "i", "j", to=1),
        node("Identity", "k", "k2"),
        node("Conv", "j k2", "c"),
        source="c",
        features=2 * 9 * 8,
        arrays={"k": (2, 4, 1, 1)},
    )
    assert kinds(graph) == ["input", "conv", "flatten", "dense", "softmax_cross_entropy"]


def test_what_leads_nowhere_is_left_out() -> None:
    graph = with_head(node("Relu", "x", "unused"), source="x", features=FLAT)
    assert "relu" not in kinds(graph)


def test_names_are_made_unique_and_one_line() -> None:
    graph = with_head(
        node("Relu", "x", "a", name="act"),
        node("Relu", "a", "b", name="act"),
        node("Relu", "b", "c", name="two\nlines"),
        source="c",
        features=FLAT,
    )
    assert [layer.name for layer in graph.layers[1:4]] == ["act", "act_2", "two\\nlines"]


def test_weights_that_old_files_also_list_as_inputs() -> None:
    graph = read_model(
        node("Flatten", "x", "flat"),
        node("Gemm", "flat w", "y", transB=1),
        arrays={"w": (CLASSES, FLAT)},
        inputs={"x": (1, *IMAGE), "w": (CLASSES, FLAT)},
    )
    assert graph.shapes["x"] == IMAGE
