"""Lowers layers to an ONNX model: one node with the layer's name, if ONNX has such a node.

Values are named `WHAT of LAYER`. The model has only names and shapes of arrays; the session gets the arrays separately:
a model with its weights inside would be copied three times, and is limited to 2 GiB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper

from deepstone.backends.wire_graph import LOSS, WireGraph, WireLayer

OPSET: Final = 17  # has all that is needed; ONNX Runtime has supported it since 2022
IR_VERSION: Final = 8
LABELS: Final = "labels"  # int64, one column

_BUFFERS: Final[Mapping[str, Callable[..., Any]]] = {"running_mean": np.zeros, "running_var": np.ones}


class Lowering:
    """Adds layers one by one, and makes a model of them."""

    def __init__(self, graph: WireGraph, weights: Mapping[str, Mapping[str, Any]], batch: int) -> None:
        self._graph = graph
        self._weights = weights
        self._batch = batch
        self._nodes: list[Any] = []
        self.arrays: dict[str, Any] = {}  # float32, by the name of their value
        self._table: dict[str, Callable[[WireLayer, list[str]], object]] = {
            "conv": self._conv,
            "dense": self._dense,
            "batch_norm": self._batch_norm,
            "relu": lambda layer, inputs: self._node(layer, "Relu", inputs),
            "max_pool": self._max_pool,
            "average_pool": self._average_pool,
            "global_pool": lambda layer, inputs: self._node(layer, "GlobalAveragePool", inputs),
            "lrn": self._lrn,
            "dropout": lambda layer, inputs: self._node(layer, "Identity", inputs),  # as in all evaluation
            "add": lambda layer, inputs: self._node(layer, "Add" if len(inputs) == 2 else "Sum", inputs),
            "concat": lambda layer, inputs: self._node(layer, "Concat", inputs, axis=1),
            "flatten": lambda layer, inputs: self._node(layer, "Flatten", inputs, axis=1),
            LOSS: self._loss,
        }

    @property
    def ops(self) -> list[str]:
        return ["input", *self._table]

    def add(self, layer: WireLayer) -> None:
        self._table[layer.op](layer, [output_of(name) for name in layer.inputs])

    def add_sum_of_losses(self) -> str:
        """Add the sum, and return the name of the network's loss."""
        losses = [output_of(layer.name) for layer in self._graph.layers if layer.op == LOSS]
        if len(losses) == 1:
            return losses[0]
        self._nodes.append(helper.make_node("Sum", losses, ["sum of losses"]))
        return "sum of losses"

    def model(self, reads: Sequence[str], gives: str, shape: Sequence[int]) -> bytes:
        """Return a model of the nodes so far. Its inputs are the outputs of `reads`, and the labels if one is a
        loss."""
        inputs = [
            helper.make_tensor_value_info(output_of(name), TensorProto.FLOAT, [self._batch, *self._graph.shape(name)])
            for name in reads
        ]
        if any(LABELS in node.input for node in self._nodes):
            inputs.append(helper.make_tensor_value_info(LABELS, TensorProto.INT64, [self._batch, 1]))
        graph = helper.make_graph(
            self._nodes,
            "network",
            inputs,
            [helper.make_tensor_value_info(gives, TensorProto.FLOAT, shape)],
            initializer=[_declared(name, array.shape) for name, array in self.arrays.items()],
        )
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opsets).SerializeToString()

    def _node(self, layer: WireLayer, kind: str, inputs: list[str], to: str = "output", **attributes: Any) -> str:
        value = f"{to} of {layer.name}"
        name = layer.name if to == "output" else value
        self._nodes.append(helper.make_node(kind, inputs, [value], name=name, **attributes))
        return value

    def _array(self, layer: WireLayer, name: str, values: Any) -> str:
        value = key_of(layer.name, name)
        self.arrays[value] = np.array(values, dtype=np.float32)
        return value

    def _parameters(self, layer: WireLayer) -> list[str]:
        return [self._array(layer, name, self._weights[layer.name][name]) for name in layer.parameters]

    def _conv(self, layer: WireLayer, inputs: list[str]) -> None:
        has = layer.has
        self._node(
            layer,
            "Conv",
            [*inputs, *self._parameters(layer)],
            kernel_shape=has["kernel"],
            strides=has["stride"],
            pads=_begins_then_ends(has["pad"]),
            dilations=has["dilation"],
            group=has["groups"],
        )

    def _dense(self, layer: WireLayer, inputs: list[str]) -> None:
        self._node(layer, "Gemm", [*inputs, *self._parameters(layer)], transB=1)

    def _batch_norm(self, layer: WireLayer, inputs: list[str]) -> None:
        arrays = self._parameters(layer)
        arrays += [self._array(layer, name, _BUFFERS[name](layer.parameters["weight"])) for name in layer.buffers]
        self._node(layer, "BatchNormalization", [*inputs, *arrays], epsilon=layer.has["epsilon"])

    def _max_pool(self, layer: WireLayer, inputs: list[str]) -> None:
        self._node(layer, "MaxPool", inputs, **_pool(layer, self._pads(layer)))

    def _average_pool(self, layer: WireLayer, inputs: list[str]) -> None:
        pads, counts = self._pads(layer), layer.has["count_pad"]
        whole = _pool(layer, pads)
        beyond_pad = any(wide > given for wide, given in zip(pads, layer.has["pad"], strict=True))
        if not beyond_pad or not counts or not any(layer.has["pad"]):  # then ONNX counts the same places
            self._node(layer, "AveragePool", inputs, **whole, count_include_pad=int(counts and not beyond_pad))
            return
        rows, columns = layer.places_that_count(self._graph.shape(layer.inputs[0]))
        kernel = layer.has["kernel"]
        share = kernel[0] * kernel[1] / np.outer(rows, columns)
        mean = self._node(layer, "AveragePool", inputs, "mean", **whole, count_include_pad=1)
        self._node(layer, "Mul", [mean, self._array(layer, "share", share)])

    def _pads(self, layer: WireLayer) -> tuple[int, int, int, int]:
        """Return pads that give the graph's windows with rounding down: versions of ONNX Runtime round up
        differently."""
        source, found = self._graph.shape(layer.inputs[0]), []
        for side in (0, 1):
            before, after = layer.has["pad"][2 * side : 2 * side + 2]
            end = (layer.output[1 + side] - 1) * layer.has["stride"][side] + layer.has["kernel"][side]
            found += [before, max(end - before - source[1 + side], 0) if layer.has["ceil_mode"] else after]
        return found[0], found[1], found[2], found[3]

    def _lrn(self, layer: WireLayer, inputs: list[str]) -> None:
        size, alpha, beta, k = (layer.has[name] for name in ("size", "alpha", "beta", "k"))
        if not layer.has["within_channel"]:
            self._node(layer, "LRN", inputs, size=size, alpha=alpha, beta=beta, bias=k)
            return
        square = self._node(layer, "Mul", [*inputs, *inputs], "square")
        half = (size // 2,) * 4
        mean = self._node(
            layer, "AveragePool", [square], "mean", kernel_shape=(size, size), pads=half, count_include_pad=1
        )
        scaled = self._node(layer, "Mul", [mean, self._array(layer, "alpha", alpha)], "scaled")
        base = self._node(layer, "Add", [scaled, self._array(layer, "k", k)], "base")
        scale = self._node(layer, "Pow", [base, self._array(layer, "power", -beta)], "scale")
        self._node(layer, "Mul", [*inputs, scale])

    def _loss(self, layer: WireLayer, inputs: list[str]) -> None:
        logarithms = self._node(layer, "LogSoftmax", inputs, "logarithms", axis=1)
        picked = self._node(layer, "GatherElements", [logarithms, LABELS], "picked", axis=1)
        mean = self._node(layer, "ReduceMean", [picked], "mean", keepdims=0)
        self._node(layer, "Mul", [mean, self._array(layer, "minus weight", -layer.has["weight"])])


def output_of(layer: str) -> str:
    return key_of(layer, "output")


def key_of(layer: str, array: str) -> str:
    """Return the name of a value."""
    return f"{array} of {layer}"


def _pool(layer: WireLayer, pads: tuple[int, int, int, int]) -> dict[str, Any]:
    return {
        "kernel_shape": layer.has["kernel"],
        "strides": layer.has["stride"],
        "pads": _begins_then_ends(pads),
    }


def _begins_then_ends(pad: Sequence[int]) -> list[int]:
    """Reorder pads: ONNX lists the starts of all sides and then their ends."""
    top, bottom, left, right = pad
    return [top, left, bottom, right]


def _declared(name: str, shape: tuple[int, ...]) -> Any:
    """Declare an external array; the session gets it by name."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="memory")
    return tensor


def onnx_version() -> str:
    return str(onnx.__version__)
