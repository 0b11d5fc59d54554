"""Writes a graph as a network for Caffe, in the form of its train_val files, with dummy data.

Layers keep their names, and layers that Caffe can compute in place are written so, as in hand-written files. Layers
that Caffe cannot express are refused, all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from deepstone.errors import UsageError
from deepstone.graph import ops
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Op, OpError, Pad, Pair, Shape

_MOST_TOLD = 5


class Word(str):
    """A value without quotes."""

    __slots__ = ()


_Value: TypeAlias = "str | int | float | bool | Word | _Pairs"
_Pairs: TypeAlias = "list[tuple[str, _Value]]"

_FILLER: _Pairs = [("type", "msra")]  # He initialization, as in our own weights


class _CannotWriteError(Exception):
    """Caffe cannot express a layer."""


def prototxt(graph: Graph, *, batch: int) -> str:
    """Return a network for `caffe time` and `caffe train`. Raises UsageError with the layers that Caffe does not
    have."""
    return "".join(f"{line}\n" for line in _lines(_Writer(graph, batch).net(), ""))


class _Writer:
    def __init__(self, graph: Graph, batch: int) -> None:
        self._graph = graph
        self._batch = batch
        self._names = {layer.name for layer in graph.layers}
        self._label = self._free("label")
        self._blobs: dict[str, str] = {}  # layer to the blob of its output

    def net(self) -> _Pairs:
        net: _Pairs = [("name", self._graph.name)]
        wrong: dict[str, list[str]] = {}
        for layer in self._graph.layers:
            try:
                net += [("layer", written) for written in self._layer(layer)]
            except _CannotWriteError as error:
                wrong.setdefault(str(error), []).append(layer.name)
        if wrong:
            reasons = "; ".join(f"{why} ({_listed(names)})" for why, names in wrong.items())
            raise UsageError(f"Caffe cannot express {self._graph.name}: {reasons}")
        return net

    def _layer(self, layer: Layer) -> Iterator[_Pairs]:
        top = self._blobs[layer.inputs[0]] if self._in_place(layer) else layer.name
        self._blobs[layer.name] = top
        bottoms: _Pairs = [("bottom", self._blobs[name]) for name in layer.inputs]
        if layer is self._graph.input:
            yield self._data(layer)
        elif isinstance(layer.op, ops.BatchNorm):
            yield from self._batch_norm(layer, layer.op, bottoms)
        elif isinstance(layer.op, ops.SoftmaxCrossEntropy):
            weight: _Pairs = [] if layer.op.weight == 1.0 else [("loss_weight", layer.op.weight)]
            labels: _Pairs = [*bottoms, ("bottom", self._label), ("top", top), *weight]
            yield [("name", layer.name), ("type", "SoftmaxWithLoss"), *labels]
        else:
            kind, parameters = _described(layer.op, self._graph.input_shapes(layer))
            yield [("name", layer.name), ("type", kind), *bottoms, ("top", top), *parameters]

    def _data(self, layer: Layer) -> _Pairs:
        sizes = [(self._batch, *self._graph.shapes[layer.name]), (self._batch,)]
        shapes: _Pairs = [("shape", [("dim", side) for side in size]) for size in sizes]
        fillers: _Pairs = [
            ("data_filler", [("type", "gaussian"), ("std", 1)]),
            ("data_filler", [("type", "constant"), ("value", 0)]),
        ]
        return [
            ("name", layer.name),
            ("type", "DummyData"),
            ("top", layer.name),
            ("top", self._label),
            ("dummy_data_param", [*shapes, *fillers]),
        ]

    def _batch_norm(self, layer: Layer, op: ops.BatchNorm, bottoms: _Pairs) -> Iterator[_Pairs]:
        """Two layers in Caffe: one normalizes, the other scales and shifts in place."""
        fraction = 1 - Decimal(repr(op.momentum))
        if float(1 - fraction) != op.momentum:
            raise _CannotWriteError(f"it keeps 1 - momentum, in which a momentum of {op.momentum} is lost")
        statistics: _Pairs = [("moving_average_fraction", Word(f"{fraction:f}")), ("eps", op.epsilon)]
        top: _Pairs = [("top", layer.name)]
        yield [("name", layer.name), ("type", "BatchNorm"), *bottoms, *top, ("batch_norm_param", statistics)]
        yield [
            ("name", self._free(f"{layer.name}/scale")),
            ("type", "Scale"),
            ("bottom", layer.name),
            *top,
            ("scale_param", [("bias_term", True)]),
        ]

    def _in_place(self, layer: Layer) -> bool:
        """Whether no other layer reads the input, and the backward pass of its producer does not read its output."""
        if not isinstance(layer.op, (ops.Relu, ops.Dropout)):
            return False
        source = self._graph.layer(layer.inputs[0])
        keeps = (
            ops.Conv,
            ops.Dense,
            ops.BatchNorm,
            ops.Add,
            ops.Concat,
            ops.MaxPool,
            ops.AveragePool,
            ops.GlobalPool,
            ops.Relu,
            ops.Dropout,
        )
        return isinstance(source.op, keeps) and len(self._graph.consumers[source.name]) == 1

    def _free(self, name: str) -> str:
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name


def _listed(names: Sequence[str]) -> str:
    left = len(names) - _MOST_TOLD
    more = f" and {left} more" if left > 0 else ""
    return f"layer{'s' if len(names) > 1 else ''} {', '.join(names[:_MOST_TOLD])}{more}"


def _described(op: Op, inputs: Sequence[Shape]) -> tuple[str, _Pairs]:
    """Return Caffe's type for an operation, and its parameters."""
    if type(op) not in _WRITERS:
        raise _CannotWriteError(f"it has no {op.kind}")
    return _WRITERS[type(op)](op, inputs)


def _conv(op: ops.Conv, inputs: Sequence[Shape]) -> tuple[str, _Pairs]:
    parameters: _Pairs = [
        ("num_output", op.channels),
        *_sides("kernel_size", "kernel", op.kernel),
        *([] if op.stride == (1, 1) else _sides("stride", "stride", op.stride)),
        *_pad(op.pad),
    ]
    if op.dilation != (1, 1):
        parameters += [("dilation", side) for side in dict.fromkeys(op.dilation)]
    if op.groups != 1:
        parameters.append(("group", op.groups))
    return "Convolution", [("convolution_param", [*parameters, *_bias(op.bias), ("weight_filler", _FILLER)])]


def _pool(op: ops.MaxPool | ops.AveragePool, inputs: Sequence[Shape]) -> tuple[str, _Pairs]:
    average = isinstance(op, ops.AveragePool)
    if isinstance(op, ops.AveragePool) and any(op.pad) and not op.count_pad:
        raise _CannotWriteError("its averages always count the padding")
    parameters: _Pairs = [
        ("pool", Word("AVE" if average else "MAX")),
        *_sides("kernel_size", "kernel", op.kernel),
        *_sides("stride", "stride", op.stride),
        *_pad(op.pad),
    ]
    expected = op.output(list(inputs))[1:]
    if expected != _caffe_windows(op, inputs[0], round_up=True):
        if expected != _caffe_windows(op, inputs[0], round_up=False):
            raise _CannotWriteError("it has no way of rounding that gives this number of windows")
        parameters.append(("round_mode", Word("FLOOR")))  # known to Caffe since 2018
    return "Pooling", [("pooling_param", parameters)]


def _caffe_windows(op: ops.MaxPool | ops.AveragePool, shape: Shape, *, round_up: bool) -> Shape | None:
    """Return how many windows Caffe would have; None if it would compute beyond the image."""
    top, bottom, left, right = op.pad
    sides = zip(shape[1:], ((top, bottom), (left, right)), op.kernel, op.stride, strict=True)
    counts: list[int] = []
    for size, pad, kernel, stride in sides:
        count = (-(-(size + sum(pad) - kernel) // stride) if round_up else (size + sum(pad) - kernel) // stride) + 1
        if not any(op.pad) and (count - 1) * stride >= size:
            return None
        try:
            counts.append(ops.pooled("", size, pad, kernel, stride, round_up))
        except OpError:
            return None
    return tuple(counts)


def _global_pool(op: Op, inputs: Sequence[Shape]) -> tuple[str, _Pairs]:
    return "Pooling", [("pooling_param", [("pool", Word("AVE")), ("global_pooling", True)])]


def _dense(op: ops.Dense, inputs: Sequence[Shape]) -> tuple[str, _Pairs]:
    parameters: _Pairs = [("num_output", op.features), *_bias(op.bias), ("weight_filler", _FILLER)]
    return "InnerProduct", [("inner_product_param", parameters)]


def _lrn(op: ops.Lrn, inputs: Sequence[Shape]) -> tuple[str, _Pairs]:
    if op.within_channel and op.k != 1.0:
        raise _CannotWriteError("its LRN within a channel has k = 1")
    parameters: _Pairs = [("local_size", op.size), ("alpha", op.alpha), ("beta", op.beta)]
    if op.k != 1.0:
        parameters.append(("k", op.k))
    if op.within_channel:
        parameters.append(("norm_region", Word("WITHIN_CHANNEL")))
    return "LRN", [("lrn_param", parameters)]


def _dropout(op: ops.Dropout, inputs: Sequence[Shape]) -> tuple[str, _Pairs]:
    return "Dropout", [("dropout_param", [("dropout_ratio", op.rate)])]


def _plain(kind: str) -> Callable[[Any, Sequence[Shape]], tuple[str, _Pairs]]:
    return lambda op, inputs: (kind, [])


_WRITERS: dict[type[Op], Callable[[Any, Sequence[Shape]], tuple[str, _Pairs]]] = {
    ops.Add: _plain("Eltwise"),
    ops.AveragePool: _pool,
    ops.Concat: _plain("Concat"),
    ops.Conv: _conv,
    ops.Dense: _dense,
    ops.Dropout: _dropout,
    ops.Flatten: _plain("Flatten"),
    ops.GlobalPool: _global_pool,
    ops.Lrn: _lrn,
    ops.MaxPool: _pool,
    ops.Relu: _plain("ReLU"),
    ops.Sigmoid: _plain("Sigmoid"),
    ops.Tanh: _plain("TanH"),
}


def _sides(both: str, each: str, pair: Pair) -> _Pairs:
    if pair[0] == pair[1]:
        return [(both, pair[0])]
    return [(f"{each}_h", pair[0]), (f"{each}_w", pair[1])]


def _pad(pad: Pad) -> _Pairs:
    top, bottom, left, right = pad
    if top != bottom or left != right:
        raise _CannotWriteError(f"it pads opposite sides alike, not {list(pad)}")
    return _sides("pad", "pad", (top, left)) if any(pad) else []


def _bias(bias: bool) -> _Pairs:
    return [] if bias else [("bias_term", False)]


def _lines(pairs: _Pairs, indent: str) -> Iterator[str]:
    for name, value in pairs:
        if isinstance(value, list):
            inner = value
            if any(isinstance(part, list) for _, part in inner) or len(inner) > 4:
                yield f"{indent}{name} {{"
                yield from _lines(inner, f"{indent}  ")
                yield f"{indent}}}"
            else:
                yield f"{indent}{name} {{ {' '.join(f'{key}: {_text(part)}' for key, part in inner)} }}"
        else:
            yield f"{indent}{name}: {_text(value)}"


def _text(value: object) -> str:
    if isinstance(value, Word):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)
