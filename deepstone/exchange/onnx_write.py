"""Writes a layer graph to an ONNX file: the network for inference, from images to one number per class.

Losses are not part of it, because other programs expect networks without them; a property of the file names them for
us. The weights are Deepstone's initial weights.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from deepstone.errors import UsageError
from deepstone.exchange.onnx_file import (
    IR_VERSION,
    LIMIT_BYTES,
    LOSSES,
    OPSET,
    PRODUCER,
    WITHIN_CHANNEL_FUNCTION,
    onnx_package,
)
from deepstone.graph import ops
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Pad
from deepstone.graph.weights import Float32s, initial_buffers, initial_parameters

_BATCH: Final = "N"
_FLOAT: Final = 1  # as ONNX numbers the types of arrays
_INT64: Final = 7
_SPARE_BYTES: Final = 2**24  # for everything but weights

NodeAttributes: TypeAlias = Mapping[str, int | float | str | Sequence[int]]


def write(graph: Graph, *, seed: int = 0) -> bytes:
    """Return a complete ONNX file. Raises UsageError for a graph that ONNX cannot express."""
    onnx = onnx_package()
    if graph.opaque:
        raise UsageError(
            f"{graph.name}: layer {graph.opaque[0].name!r} is a torch module, which only torch sees into; "
            "torch.onnx.export writes it"
        )
    values = sum(math.prod(shape) for layer in graph.layers for shape in graph.parameters(layer).values())
    if 4 * values > LIMIT_BYTES - _SPARE_BYTES:
        raise UsageError(f"{graph.name} has more weights than the 2 GiB that an ONNX file can hold")
    return _Writer(onnx, graph, seed).model().SerializeToString()


class _Writer:
    def __init__(self, onnx: Any, graph: Graph, seed: int) -> None:
        self._onnx = onnx
        self._graph = graph
        self._arrays = {**initial_parameters(graph, seed)}
        for layer, buffers in initial_buffers(graph).items():
            self._arrays[layer] = {**self._arrays.get(layer, {}), **buffers}
        self._nodes: list[Any] = []
        self._initializers: list[Any] = []

    def model(self) -> Any:
        onnx, graph = self._onnx, self._graph
        for layer in graph.layers:
            if not isinstance(layer.op, (ops.Input, ops.SoftmaxCrossEntropy)):
                self._put(layer)
        logits = list(dict.fromkeys(loss.inputs[0] for loss in graph.losses))
        made = onnx.helper.make_graph(
            self._nodes,
            graph.name,
            [self._info(graph.input.name)],
            [self._info(name) for name in logits],
            initializer=self._initializers,
        )
        opsets = [onnx.helper.make_opsetid("", OPSET)]
        functions: list[Any] = []
        if any(isinstance(layer.op, ops.Lrn) and layer.op.within_channel for layer in graph.layers):
            opsets.append(onnx.helper.make_opsetid(PRODUCER, 1))
            functions.append(_within_channel(onnx))
        model = onnx.helper.make_model(
            made, producer_name=PRODUCER, ir_version=IR_VERSION, opset_imports=opsets, functions=functions
        )
        losses = [
            {"name": layer.name, "output": layer.inputs[0], "weight": layer.op.weight}
            for layer in graph.losses
            if isinstance(layer.op, ops.SoftmaxCrossEntropy)
        ]
        onnx.helper.set_model_props(model, {LOSSES: json.dumps(losses)})
        return model

    def _info(self, name: str) -> Any:
        return self._onnx.helper.make_tensor_value_info(name, _FLOAT, [_BATCH, *self._graph.shapes[name]])

    def _put(self, layer: Layer) -> None:
        op = layer.op
        match op:
            case ops.Conv():
                attributes = {
                    "kernel_shape": op.kernel,
                    "strides": op.stride,
                    "pads": _pads(op.pad),
                    "dilations": op.dilation,
                    "group": op.groups,
                }
                self._node(layer, "Conv", ("weight", "bias"), attributes)
            case ops.MaxPool():
                self._node(layer, "MaxPool", (), self._window(layer, op))
            case ops.AveragePool():
                attributes = {**self._window(layer, op), "count_include_pad": int(op.count_pad)}
                self._node(layer, "AveragePool", (), attributes)
            case ops.GlobalPool():
                self._node(layer, "GlobalAveragePool")
            case ops.Dense():
                self._node(layer, "Gemm", ("weight", "bias"), {"transB": 1})
            case ops.Relu():
                self._node(layer, "Relu")
            case ops.Clip():
                limits = [
                    self._array(layer, name, np.array(limit, dtype=np.float32))
                    for name, limit in (("min", op.low), ("max", op.high))
                ]
                self._node(layer, "Clip", more=limits)
            case ops.Sigmoid():
                self._node(layer, "Sigmoid")
            case ops.Tanh():
                self._node(layer, "Tanh")
            case ops.Silu():
                self._silu(layer)
            case ops.HardSigmoid():
                self._node(layer, "HardSigmoid", (), {"alpha": 1 / 6, "beta": 0.5})
            case ops.HardSwish():
                self._node(layer, "HardSwish")
            case ops.BatchNorm():
                arrays = ("weight", "bias", "running_mean", "running_var")
                attributes = {"epsilon": op.epsilon, "momentum": 1 - op.momentum}
                self._node(layer, "BatchNormalization", arrays, attributes)
            case ops.Lrn(within_channel=False):
                self._node(layer, "LRN", (), {"size": op.size, "alpha": op.alpha, "beta": op.beta, "bias": op.k})
            case ops.Lrn():
                attributes = {
                    "kernel_shape": (op.size, op.size),
                    "pads": (op.size // 2,) * 4,
                    "alpha": op.alpha,
                    "beta": op.beta,
                    "k": op.k,
                }
                self._node(layer, WITHIN_CHANNEL_FUNCTION, (), attributes, domain=PRODUCER)
            case ops.Dropout():
                ratio = self._array(layer, "ratio", np.array(op.rate, dtype=np.float32))
                self._node(layer, "Dropout", more=[ratio])
            case ops.Add():
                self._node(layer, "Add" if len(layer.inputs) == 2 else "Sum")
            case ops.Multiply():
                self._multiply(layer)
            case ops.Concat():
                self._node(layer, "Concat", (), {"axis": 1})
            case ops.Slice():
                ends = {"starts": op.first, "ends": op.first + op.channels, "axes": 1}
                self._node(layer, "Slice", more=[self._whole(layer, *end) for end in ends.items()])
            case ops.Shuffle():
                self._shuffle(layer, op)
            case ops.Flatten():
                self._node(layer, "Flatten", (), {"axis": 1})
            case _:
                raise AssertionError(f"no ONNX node for {op.kind}")

    def _silu(self, layer: Layer) -> None:
        """Write SiLU as x · sigmoid(x), as other exporters do: this opset has no such node."""
        gate = self._free(f"{layer.name}.sigmoid")
        make = self._onnx.helper.make_node
        self._nodes += [
            make("Sigmoid", layer.inputs, [gate], name=gate),
            make("Mul", [layer.inputs[0], gate], [layer.name], name=layer.name),
        ]

    def _multiply(self, layer: Layer) -> None:
        """Write a product. A flat gate gets a height and a width of 1, because ONNX would broadcast it over the last
        dimensions."""
        make = self._onnx.helper.make_node
        sides = len(self._graph.shapes[layer.name])
        factors: list[str] = []
        for name in layer.inputs:
            if len(self._graph.shapes[name]) == sides:
                factors.append(name)
                continue
            axes, gate = self._free(f"{layer.name}.axes"), self._free(f"{layer.name}.gate")
            self._initializers.append(self._onnx.helper.make_tensor(axes, _INT64, [2], [2, 3]))
            self._nodes.append(make("Unsqueeze", [name, axes], [gate], name=gate))
            factors.append(gate)
        self._nodes.append(make("Mul", factors, [layer.name], name=layer.name))

    def _shuffle(self, layer: Layer, op: ops.Shuffle) -> None:
        """Write a channel shuffle as other exporters do: split the groups, swap them with their members, and join."""
        channels, *sides = self._graph.shapes[layer.name]
        make = self._onnx.helper.make_node
        apart, swapped = (self._free(f"{layer.name}.{name}") for name in ("apart", "swapped"))
        groups = self._whole(layer, "groups", 0, op.groups, channels // op.groups, *sides)
        whole = self._whole(layer, "whole", 0, channels, *sides)
        self._nodes += [
            make("Reshape", [layer.inputs[0], groups], [apart], name=apart),
            make("Transpose", [apart], [swapped], name=swapped, perm=[0, 2, 1, 3, 4]),
            make("Reshape", [swapped, whole], [layer.name], name=layer.name),
        ]

    def _whole(self, layer: Layer, name: str, *values: int) -> str:
        full = self._free(f"{layer.name}.{name}")
        self._initializers.append(self._onnx.helper.make_tensor(full, _INT64, [len(values)], values))
        return full

    def _window(self, layer: Layer, op: ops.MaxPool | ops.AveragePool) -> NodeAttributes:
        if op.ceil_mode and _drops_a_window(op, self._graph.input_shapes(layer)[0]):
            raise UsageError(
                f"{self._graph.name}: layer {layer.name!r} leaves out a last window that would start in the padding; "
                "programs that read ONNX do not agree on that"
            )
        return {
            "kernel_shape": op.kernel,
            "strides": op.stride,
            "pads": _pads(op.pad),
            "ceil_mode": int(op.ceil_mode),
        }

    def _node(
        self,
        layer: Layer,
        kind: str,
        arrays: tuple[str, ...] = (),
        attributes: NodeAttributes | None = None,
        *,
        more: list[str] | None = None,
        domain: str = "",
    ) -> None:
        """Write one node with the name of its layer; `arrays` are its parameters and buffers."""
        held = self._arrays.get(layer.name, {})
        given = [self._array(layer, name, held[name]) for name in arrays if name in held]
        self._nodes.append(
            self._onnx.helper.make_node(
                kind,
                [*layer.inputs, *given, *(more or [])],
                [layer.name],
                name=layer.name,
                domain=domain or None,
                **(attributes or {}),
            )
        )

    def _array(self, layer: Layer, name: str, values: Float32s) -> str:
        full = self._free(f"{layer.name}.{name}")
        raw = values.astype("<f4", copy=False).tobytes()
        self._initializers.append(self._onnx.helper.make_tensor(full, _FLOAT, values.shape, raw, raw=True))
        return full

    def _free(self, name: str) -> str:
        while name in self._graph.shapes:
            name += "_"
        return name


def _pads(pad: Pad) -> tuple[int, int, int, int]:
    top, bottom, left, right = pad
    return top, left, bottom, right


def _drops_a_window(op: ops.MaxPool | ops.AveragePool, image: tuple[int, ...]) -> bool:
    sides = zip(image[1:], (op.pad[:2], op.pad[2:]), op.kernel, op.stride, strict=True)
    for size, pad, kernel, stride in sides:
        rounded_up = -(-(size + sum(pad) - kernel) // stride) + 1
        if ops.pooled("side", size, (pad[0], pad[1]), kernel, stride, True) != rounded_up:
            return True
    return False


def _within_channel(onnx: Any) -> Any:
    """Write the norm within channels in ONNX's own operations, because ONNX lacks it: x / (k + alpha ·
    mean(x²))^beta."""
    nodes: list[Any] = []

    def put(kind: str, inputs: list[str], output: str, *references: tuple[str, str, int], **attributes: Any) -> None:
        node = onnx.helper.make_node(kind, inputs, [output], **attributes)
        for name, of_function, type_ in references:
            node.attribute.add(name=name, type=type_, ref_attr_name=of_function)
        nodes.append(node)

    for name in ("alpha", "beta", "k"):
        put("Constant", [], name, ("value_float", name, onnx.AttributeProto.FLOAT))
    put("Mul", ["x", "x"], "square")
    windows = (
        ("kernel_shape", "kernel_shape", onnx.AttributeProto.INTS),
        ("pads", "pads", onnx.AttributeProto.INTS),
    )
    put("AveragePool", ["square"], "mean", *windows, count_include_pad=1)
    put("Mul", ["mean", "alpha"], "scaled")
    put("Add", ["scaled", "k"], "base")
    put("Pow", ["base", "beta"], "scale")
    put("Div", ["x", "scale"], "y")
    return onnx.helper.make_function(
        PRODUCER,
        WITHIN_CHANNEL_FUNCTION,
        ["x"],
        ["y"],
        nodes,
        [onnx.helper.make_opsetid("", OPSET)],
        attributes=["kernel_shape", "pads", "alpha", "beta", "k"],
    )
