"""ONNX models written node by node, as other programs would write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from deepstone.exchange.onnx_read import read
from deepstone.graph.graph import Graph

PATH = Path("/models/net.onnx")
IMAGE = (4, 9, 8)
CLASSES = 5


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """Inputs and outputs are names with spaces between; `-` is one that is left out."""
    given = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op, given, outputs.split(), **attributes)


def model(
    *nodes: onnx.NodeProto,
    arrays: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Sequence[int | str | None]] | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
) -> bytes:
    """Images x of 4 x 9 x 8 go in and y comes out, unless told otherwise. A tuple in `arrays` is a shape of floats."""
    given = {
        name: np.zeros(value, dtype=np.float32) if isinstance(value, tuple) else np.asarray(value)
        for name, value in (arrays or {}).items()
    }
    graph = helper.make_graph(
        list(nodes),
        "main_graph",
        [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, sides)
            for name, sides in (inputs or {"x": ("N", *IMAGE)}).items()
        ],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs],
        initializer=[onnx.numpy_helper.from_array(value, name) for name, value in given.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def read_model(*nodes: onnx.NodeProto, **more: Any) -> Graph:
    return read(PATH, model(*nodes, **more))


def head(source: str, features: int) -> list[onnx.NodeProto]:
    """From an image to scores: what a model needs to be whole. Its weight `w` must be (classes, features)."""
    return [node("Flatten", source, "flat"), node("Gemm", "flat w", "y", transB=1, name="scores")]


def with_head(*nodes: onnx.NodeProto, source: str, features: int, arrays: Mapping[str, Any] | None = None) -> Graph:
    """The graph of nodes that end in an image of so many values."""
    return read_model(*nodes, *head(source, features), arrays={**(arrays or {}), "w": (CLASSES, features)})
