"""What an ONNX file cannot be: one line that begins with its name, whatever lies in it."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from depth import examples
from graph_examples import branching
from hypothesis import example, given
from hypothesis import strategies as st
from onnx import helper
from onnx_kit import CLASSES, IMAGE, PATH, head, model, node

from deepstone.errors import GraphError, MissingError, UsageError
from deepstone.exchange.load import load_model
from deepstone.exchange.onnx_file import LIMIT_BYTES
from deepstone.exchange.onnx_read import read
from deepstone.exchange.onnx_write import write

FLAT = math.prod(IMAGE)
ENDS: dict[str, Any] = {"w": (CLASSES, FLAT)}


def refusal(content: bytes) -> str:
    with pytest.raises(GraphError) as caught:
        read(PATH, content)
    message = str(caught.value)
    assert message.startswith(str(PATH))
    assert message.isprintable()
    return message


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is not an ONNX file with a graph in it"),
        (b"this is some text\n", "is not an ONNX file"),
        (b'{"schema": 1}', "is not an ONNX file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "is not an ONNX file"),
        (onnx.ModelProto().SerializeToString(), "with a graph in it"),
        (model(*head("x", FLAT), arrays=ENDS)[:-40], "is not an ONNX file, or not a whole one"),
        (b"\x3a\xff\xff\xff\xff\x7f", "is not an ONNX file, or not a whole one"),
    ],
)
def test_what_is_no_model(content: bytes, why: str) -> None:
    assert why in refusal(content)


def test_a_size_that_the_file_cannot_have_is_told_as_such() -> None:
    content = model(*head("x", FLAT), arrays=ENDS)
    with pytest.raises(GraphError, match=r"the file is for images of its own size: leave --input out$"):
        read(PATH, content, image=(4, 5, 5))
    unreadable = model(node("Erf", "x", "a"), *head("a", FLAT), arrays=ENDS)
    with pytest.raises(GraphError) as caught:
        read(PATH, unreadable, image=(4, 5, 5))
    assert "--input" not in str(caught.value)


def test_messages_inside_each_other_without_end() -> None:
    """An attribute holds a graph that holds a node that holds an attribute that holds …"""
    inner = b""
    for _ in range(2000):
        attribute = b"\x32" + _length(inner) + inner  # AttributeProto.g
        nodes = b"\x2a" + _length(attribute) + attribute  # NodeProto.attribute
        inner = b"\x0a" + _length(nodes) + nodes  # GraphProto.node
    assert "is not an ONNX file, or not a whole one" in refusal(b"\x3a" + _length(inner) + inner)


def _length(content: bytes) -> bytes:
    size, coded = len(content), bytearray()
    while size > 127:
        coded.append(size & 127 | 128)
        size >>= 7
    return bytes([*coded, size])


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([node("Split", "x", "a b", axis=2)], "axis"),
        ([node("Split", "x", "a b", axis=1, split=[1, 1])], "splits 4 channels into [1, 1]"),
        ([node("Slice", "x", "a", starts=[1], ends=[3], axes=[2])], "only channels"),
        ([node("Slice", "x", "a", starts=[0, 0], ends=[1, 1], axes=[1, 2])], "only one range"),
        ([node("Transpose", "x", "a", perm=[0, 1, 3, 2])], "only the shuffle of channels"),
        ([node("Reshape", "x groups", "g"), node("Relu", "g", "a")], "takes channels in groups"),
        ([node("Reshape", "x groups", "g"), node("Reshape", "g whole", "a")], "only the shuffle of channels"),
        ([node("Shape", "x", "s"), node("Mul", "s two", "a")], "computes with the batch"),
        ([node("RandomUniformLike", "x", "a")], "stochastic depth"),
    ],
)
def test_what_is_done_with_channels_and_has_no_layer(nodes: list[Any], why: str) -> None:
    arrays = {"groups": np.array([0, 2, 2, 9, 8]), "whole": np.array([0, 4, 9, 8]), "two": np.array([2])}
    assert why in refusal(model(*nodes, *head("a", FLAT), arrays={**ENDS, **arrays}))


def test_all_kinds_of_nodes_without_a_layer_are_told_at_once() -> None:
    content = model(
        node("Gelu", "x", "a", name="gate"),
        node("Gelu", "a", "b", name="gate2"),
        node("Relu", "b", "c"),
        helper.make_node("Magic", ["c"], ["d"], name="wand", domain="my.own"),
        node("Erf", "d", "e"),
        *head("e", FLAT),
        arrays=ENDS,
    )
    message = refusal(content)
    assert message == (
        f"{PATH}: 3 kinds of nodes have no layer here: Gelu (gate, gate2), my.own.Magic (wand), Erf (Erf5); "
        "if it comes from torch, measure the module itself: FILE.py:FUNCTION"
    )


def test_branches_of_a_program_are_refused_by_name() -> None:
    part = helper.make_graph([node("Relu", "x", "r")], "then", [], [])
    content = model(node("If", "c", "y", then_branch=part, else_branch=part, name="choice"))
    assert "1 kind of nodes has no layer here: If (choice)" in refusal(content)


def test_everything_that_is_wrong_with_nodes_is_told_at_once() -> None:
    content = model(
        node("MaxPool", "x", "a", name="pool", kernel_shape=[3, 3], dilations=[2, 2]),
        node("Relu", "a", "b", name="behind"),
        node("Conv", "x k", "c", name="conv", flavour=3),
        node("LRN", "x", "d", name="norm", size=4),
        node("Add", "x one", "e", name="shift"),
        *head("x", FLAT),
        arrays={**ENDS, "k": (2, 4, 1, 1), "one": np.ones((), dtype=np.float32)},
    )
    message = refusal(content)
    assert "node 'pool' (MaxPool): dilations other than 1 have no layer here" in message
    assert "node 'conv' (Conv): has attributes that are not known here: flavour" in message
    assert "node 'norm' (LRN): size must be odd and positive, not 4" in message
    assert "node 'shift' (Add): adds a constant" in message
    assert "behind" not in message  # it is not its fault


@pytest.mark.parametrize(
    ("nodes", "arrays", "why"),
    [
        ([node("Conv", "x k", "c")], {"k": (2, 4, 3)}, "its weight has 3 sides; a convolution of images has 4"),
        ([node("Conv", "x k", "c")], {"k": (2, 3, 1, 1)}, "does not fit 4 channels"),
        ([node("Conv", "x k", "c", kernel_shape=[5, 5])], {"k": (2, 4, 1, 1)}, "kernel_shape does not fit"),
        ([node("Conv", "x k", "c", strides=[1])], {"k": (2, 4, 1, 1)}, "strides must be 2 whole numbers"),
        ([node("Conv", "x k", "c", strides="no")], {"k": (2, 4, 1, 1)}, "strides is not a list"),
        ([node("Conv", "x k", "c", pads=[1, 1])], {"k": (2, 4, 1, 1)}, "pads must be 4 whole numbers"),
        ([node("Conv", "x k", "c", auto_pad="MAYBE")], {"k": (2, 4, 1, 1)}, "auto_pad is not one of"),
        ([node("Conv", "x k", "c", strides=[0, 1], auto_pad="SAME_UPPER")], {"k": (2, 4, 1, 1)}, "at least 1"),
        ([node("Conv", "x", "c")], {}, "has no weight"),
        ([node("Conv", "x x", "c")], {}, "its weight must be a constant"),
        ([node("Conv", "x k", "c")], {"k": (2, 4, 20, 1)}, "smaller than the kernel's reach 20"),
        ([node("MaxPool", "x", "c")], {}, "kernel_shape must be 2 whole numbers, one per side of an image; it is"),
        ([node("MaxPool", "x", "c i", kernel_shape=[2, 2]), node("Identity", "i", "j")], {}, "more than its first"),
        ([node("Concat", "x x", "c", axis=2)], {}, "axis=2 has no layer here"),
        ([node("Reshape", "x s", "c")], {"s": np.array([0, 8, 36])}, "only making each image flat"),
        ([node("Reshape", "x s", "c")], {"s": np.array([-1, -1])}, "only making each image flat"),
        ([node("Reshape", "x s", "c")], {"s": (1, 2)}, "its shape is not known from the file alone"),
        ([node("Softmax", "x", "c")], {}, "only at the end"),
        ([node("Dropout", "x r", "c")], {"r": np.array(1.5, dtype=np.float32)}, "rate must be at least 0"),
        ([node("BatchNormalization", "x k k k k", "c", momentum=math.nan)], {"k": (4,)}, "not a finite number"),
        ([node("BatchNormalization", "x k k k k", "c")], {"k": (3,)}, "its scale does not fit 4 channels"),
        ([node("Gather", "x i", "c")], {"i": np.array(0)}, "does more than compute a shape"),
        ([node("Mul", "x k", "c")], {"k": (1,)}, "node 'Mul1' (Mul): multiplies by a constant"),
        ([node("Clip", "x k", "c")], {"k": np.array(1.0, np.float32)}, "(Clip): clips from 1.0 to None"),
        ([node("HardSigmoid", "x", "c")], {}, "(HardSigmoid): alpha=0.2 and beta=0.5 have no layer here"),
        (
            [node("ReduceMean", "x", "m", axes=[2, 3], keepdims=0), node("Mul", "x m", "c")],
            {},
            "(Mul): multiplies an image by flat numbers, which are not one for each of its channels",
        ),
        (
            [
                node("ReduceMean", "x", "m", axes=[2, 3], keepdims=0),
                node("Reshape", "m s", "g"),
                node("Relu", "g", "c"),
            ],
            {"s": np.array([-1, 4, 1, 1])},
            "(Reshape): makes one number per channel an image; only a product can use that here",
        ),
        (
            [node("Flatten", "x", "f"), node("Unsqueeze", "f s", "c")],
            {"s": np.array([1])},
            "(Unsqueeze): only one number per channel can get a height and a width of 1",
        ),
        ([node("Expand", "x s", "c")], {"s": np.array([1, 4, 9, 8])}, "can be spread over an image"),
        ([node("Relu", "nothing", "c")], {}, "its input 'nothing' is not made by any node before it"),
        ([node("Gather", "s i", "c")], {"s": np.array([1]), "i": np.array(7)}, "takes number 7 of 1"),
    ],
)
def test_what_is_wrong_with_one_node(nodes: list[Any], arrays: dict[str, Any], why: str) -> None:
    assert why in refusal(model(*nodes, *head("x", FLAT), arrays={**ENDS, **arrays}))


@pytest.mark.parametrize(
    ("nodes", "more", "why"),
    [
        (head("x", FLAT), {"inputs": {"x": ("N", 4, "H", "W")}}, "must be images of a known size"),
        (head("x", FLAT), {"inputs": {"x": ("N", 4, 9, 0)}}, "must be images of a known size"),
        (head("x", FLAT), {"inputs": {"x": ("N", 288)}}, "must be images of a known size"),
        ([node("Add", "x z", "a"), *head("a", FLAT)], {"inputs": {"x": (1, *IMAGE), "z": (1, *IMAGE)}}, "has x, z"),
        ([node("Constant", "", "y", value_int=1)], {}, "exactly one input, the images; it has none"),
        (head("x", FLAT), {"outputs": ()}, "has no output"),
        (head("x", FLAT), {"outputs": ("elsewhere",)}, "output 'elsewhere' is not made"),
        ([node("Relu", "x", "y")], {}, "output 'y' is an image 4x9x8"),
        ([node("Flatten", "x", "f"), node("Gemm", "f v", "y")], {"arrays": {"v": (7, 3)}}, "does not fit an input"),
    ],
)
def test_what_is_wrong_with_the_whole(nodes: list[Any], more: dict[str, Any], why: str) -> None:
    assert why in refusal(model(*nodes, **{"arrays": ENDS, **more}))


def test_arrays_that_are_not_what_they_say() -> None:
    whole = onnx.load_from_string(model(*head("x", FLAT), arrays={**ENDS, "s": np.array([1, 2])}))
    whole.graph.initializer[1].dims[0] = 3
    assert "the array 's' does not hold as many bytes as its shape says" in refusal(whole.SerializeToString())
    whole.graph.initializer[1].dims[0] = -3
    assert "the array 's' has the shape [-3]" in refusal(whole.SerializeToString())


@pytest.mark.parametrize("text", ["", "[", "{}", "[1]", '[{"name": "l", "output": "no", "weight": 1}]', "[[]]"])
def test_losses_that_we_did_not_write(text: str) -> None:
    whole = onnx.load_from_string(model(*head("x", FLAT), arrays=ENDS))
    helper.set_model_props(whole, {"deepstone.losses": text})
    assert "its property deepstone.losses is not what" in refusal(whole.SerializeToString())


def test_a_file_beyond_what_protobuf_holds(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    with path.open("wb") as file:
        file.truncate(LIMIT_BYTES + 1)
    with pytest.raises(UsageError, match="is larger than 2048 MiB"):
        load_model(str(path))


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to(path), lambda path: None])
def test_what_is_no_file(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "net.onnx"
    make(path)
    with pytest.raises(UsageError) as caught:
        load_model(str(path))
    assert str(path) in str(caught.value)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingError, match=r"from the clone: pip install -e '\.\[onnx\]'"):
        load_model(str(tmp_path / "net.onnx"))


def without_weights(content: bytes) -> bytes:
    """So that changes hit what is read."""
    whole = onnx.load_from_string(content)
    for array in whole.graph.initializer:
        if array.dims:
            array.ClearField("raw_data")
    return whole.SerializeToString()


WHOLE = without_weights(write(branching()))


def test_weights_need_not_be_there() -> None:
    assert read(PATH, WHOLE).sha == branching().sha


def assert_read_or_refused(content: bytes) -> None:
    """A model comes out, or one line; never anything else."""
    told = f"{PATH}: fine"
    try:
        read(PATH, content)
    except GraphError as error:
        told = str(error)
    assert told.startswith(str(PATH))
    assert told.isprintable()


@examples(400)
@given(data=st.data())
def test_bytes_that_were_changed(data: st.DataObject) -> None:
    content = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        end = place + data.draw(st.sampled_from([0, 1, 1, 1, 7]))
        content[place:end] = data.draw(st.binary(max_size=6))
    assert_read_or_refused(bytes(content))


NAMES = ["data", "conv1", "norm1", "fc2", "gap", "conv1.weight", "drop.ratio", "", "nobody"]
OPS = ["Conv", "MaxPool", "Gemm", "MatMul", "Add", "Concat", "Flatten", "Reshape", "Squeeze", "Softmax", "Slice"]
SIDES = st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 7, 2**62])


@examples(300)
@given(data=st.data())
def test_meanings_that_were_changed(data: st.DataObject) -> None:
    """The file stays one that protobuf reads; what it says makes no sense any more."""
    whole = onnx.load_from_string(WHOLE)
    for _ in range(data.draw(st.integers(1, 3))):
        changed = data.draw(st.sampled_from(list(whole.graph.node)))
        what = data.draw(st.sampled_from(["op", "input", "attribute", "weight", "order", "side"]))
        if what == "op":
            changed.op_type = data.draw(st.sampled_from(OPS))
        elif what == "input":
            changed.input[:] = data.draw(st.lists(st.sampled_from(NAMES), max_size=4))
        elif what == "attribute" and changed.attribute:
            attribute = data.draw(st.sampled_from(list(changed.attribute)))
            attribute.ints[:] = data.draw(st.lists(SIDES, max_size=5))
            attribute.type = data.draw(st.sampled_from([attribute.type, 2, 5, 7]))
        elif what == "weight":
            array = data.draw(st.sampled_from(list(whole.graph.initializer)))
            array.dims[:] = data.draw(st.lists(SIDES, max_size=5))
        elif what == "order":
            whole.graph.node.reverse()
        else:
            whole.graph.input[0].type.tensor_type.shape.dim[2].dim_value = data.draw(SIDES)
    assert_read_or_refused(whole.SerializeToString())


@examples(200)
@given(content=st.binary(max_size=200))
@example(b"\x08\x08")
def test_any_bytes(content: bytes) -> None:
    with pytest.raises(GraphError):
        read(PATH, content)
