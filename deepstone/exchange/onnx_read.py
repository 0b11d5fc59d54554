"""From an ONNX file to a layer graph: the structure alone, since Deepstone sets its own initial weights.

Each node becomes a layer, or nothing where it only renames or computes a shape. Whatever has no layer here is told all
at once. A loss is put on every output.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from deepstone.errors import GraphError
from deepstone.exchange import onnx_sizes
from deepstone.exchange.onnx_attributes import Attributes, Refused, read_average_pool, read_conv, read_max_pool
from deepstone.exchange.onnx_file import LOSSES, PRODUCER, WITHIN_CHANNEL, Constant, Node, OnnxFile, parse, readable
from deepstone.graph import ops
from deepstone.graph.graph import Graph, Layer, make_op
from deepstone.graph.ops import Op, OpError, Shape

_LISTED: Final = 10  # errors that one line holds
_NODES_LISTED: Final = 3
_LONGEST_NAME: Final = 200


def read(path: Path, content: bytes) -> Graph:
    """The graph in an ONNX file, or a GraphError of one line that begins with the file's name."""
    file = parse(path, content)
    try:
        _refuse_unknown(file)
        reader = _Reader(file)
        reader.take_nodes()
        name = file.name if file.producer == PRODUCER else path.stem
        return Graph(name, reader.finished())
    except (GraphError, Refused) as error:
        raise GraphError(f"{path}: {error}") from error


def _refuse_unknown(file: OnnxFile) -> None:
    """All kinds of nodes that have no layer, with the nodes that are of them."""
    unknown: dict[str, list[str]] = {}
    for node in file.nodes:
        if node.op not in _HANDLERS and node.op not in onnx_sizes.COMPUTES:
            unknown.setdefault(node.op, []).append(readable(node.name))
    if unknown:
        kinds = [f"{readable(op)} ({_some(nodes, _NODES_LISTED)})" for op, nodes in unknown.items()]
        one = len(kinds) == 1
        what = f"{len(kinds)} {'kind' if one else 'kinds'} of nodes {'has' if one else 'have'} no layer here"
        raise Refused(f"{what}: {_some(kinds, _LISTED)}")


def _some(texts: Sequence[str], most: int, between: str = ", ") -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return between.join(texts[:most]) + more


class _Reader:
    """Goes through the nodes in their order, with what is known of every array so far."""

    def __init__(self, file: OnnxFile) -> None:
        self._file = file
        self._constants: dict[str, Constant] = dict(file.constants)
        self._layer_of: dict[str, str] = {}  # array -> the layer that gives it
        self._layers: dict[str, Layer] = {}
        self._shapes: dict[str, Shape] = {}
        self._lost: set[str] = set()  # arrays of nodes that were refused: what follows them is not their fault
        self._errors: list[str] = []
        self._uses = Counter(name for node in file.nodes for name in node.inputs)
        self._uses.update(file.outputs)
        self._batch = self._take_input()

    def _take_input(self) -> int | str:
        """The one image that goes in; gives the batch as the file has it."""
        inputs = {name: sides for name, sides in self._file.inputs.items() if self._uses[name]}
        if len(inputs) != 1:
            listed = _some([readable(name) for name in inputs], _LISTED) or "none"
            raise Refused(f"must have exactly one input, the images; it has {listed}")
        ((name, sides),) = inputs.items()
        image = tuple(side for side in sides[1:] if isinstance(side, int) and side > 0)
        if len(sides) != 4 or len(image) != 3:
            shown = readable(", ".join(map(str, sides)))
            raise Refused(
                f"input {readable(name)!r} must be images of a known size, [batch, channels, height, width], "
                f"not [{shown}]; export it with fixed sizes"
            )
        layer = self._named(name)
        self._layers[layer] = Layer(name=layer, op=ops.Input(shape=image))
        self._shapes[layer] = image
        self._layer_of[name] = layer
        return sides[0]

    def take_nodes(self) -> None:
        for node in self._file.nodes:
            try:
                self._take(node)
            except (Refused, OpError) as error:
                self._errors.append(f"node {readable(node.name)!r} ({readable(node.op)}): {error}")
                self._lost.update(node.outputs)
        if self._errors:
            raise Refused(_some(self._errors, _LISTED, between="; "))

    def _take(self, node: Node) -> None:
        inputs = [name for name in node.inputs if name]
        if not self._lost.isdisjoint(inputs):
            self._lost.update(node.outputs)
            return
        for name in inputs:
            if name not in self._constants and name not in self._layer_of:
                raise Refused(f"its input {readable(name)!r} is not made by any node before it")
        if not node.outputs:
            raise Refused("gives nothing")
        if any(name and self._uses[name] for name in node.outputs[1:]):
            raise Refused("more than its first output is used")
        if all(name in self._constants for name in inputs) and node.op in onnx_sizes.COMPUTES:
            self._constants[node.outputs[0]] = onnx_sizes.computed(node, [self._constants[name] for name in inputs])
            return
        if node.op not in _HANDLERS or not any(name in self._layer_of for name in inputs):
            raise Refused("has no layer here, where it does more than compute a shape")
        _HANDLERS[node.op](self, node)

    # ---- what handlers ask for and give

    def source(self, node: Node, number: int = 0) -> str:
        """The layer that gives an input."""
        name = node.inputs[number]
        if name not in self._layer_of:
            raise Refused(f"its input {readable(name)!r} must not be a constant")
        return self._layer_of[name]

    def is_constant(self, name: str) -> bool:
        return name in self._constants

    def shape(self, node: Node) -> Shape:
        return self._shapes[self.source(node)]

    def image(self, node: Node) -> Shape:
        shape = self.shape(node)
        if len(shape) != 3:
            raise Refused("needs an image, and what it gets is flat")
        return shape

    def constant(self, node: Node, number: int, what: str) -> Constant:
        found = self.optional(node, number, what)
        if found is None:
            raise Refused(f"has no {what}")
        return found

    def optional(self, node: Node, number: int, what: str) -> Constant | None:
        name = node.inputs[number] if number < len(node.inputs) else ""
        if name and name not in self._constants:
            raise Refused(f"its {what} must be a constant")
        return self._constants[name] if name else None

    def put(self, node: Node, op: Op, *sources: str, part: str = "") -> str:
        """A layer for the node; the node's output is the layer's."""
        op.check()
        given = sources or (self.source(node),)
        name = self._named(node.name + part)
        self._shapes[name] = op.output([self._shapes[source] for source in given])
        self._layers[name] = Layer(name=name, op=op, inputs=given)
        self._layer_of[node.outputs[0]] = name
        return name

    def hand_on(self, node: Node) -> None:
        """Nothing is computed: the output is the input under another name."""
        self._layer_of[node.outputs[0]] = self.source(node)

    def keep(self, node: Node, constant: Constant) -> None:
        self._constants[node.outputs[0]] = constant

    def give_bias(self, node: Node, number: int, bias: Constant) -> bool:
        """Adds a constant to the layer before, if that is a convolution or a dense layer without a bias yet."""
        source = self.source(node, number)
        layer = self._layers[source]
        sides = tuple(side for side in bias.shape if side != 1)
        if not isinstance(layer.op, (ops.Conv, ops.Dense)) or layer.op.bias or self._uses[node.inputs[number]] != 1:
            return False
        channels = self._shapes[source][0]
        trailing = 1 if isinstance(layer.op, ops.Dense) else 3
        if sides != (() if channels == 1 else (channels,)) or bias.shape[-trailing:][:1] != (channels,):
            return False
        self._layers[source] = replace(layer, op=replace(layer.op, bias=True))
        self._layer_of[node.outputs[0]] = source
        return True

    def ends_here(self, node: Node) -> bool:
        """Whether the node's output is an output of the model and nothing else."""
        name = node.outputs[0]
        return name in self._file.outputs and self._uses[name] == 1

    def is_batch(self, side: int) -> bool:
        return side in (onnx_sizes.BATCH, -1, self._batch)

    def _named(self, wanted: str) -> str:
        """A name for a layer: printable, and nobody else's."""
        text = readable(wanted, most=_LONGEST_NAME) or "layer"
        name, number = text, 1
        while name in self._layers:
            number += 1
            name = f"{text}_{number}"
        return name

    # ---- the end

    def finished(self) -> list[Layer]:
        """The layers that lead to an output, each followed by its loss if it gives one."""
        outputs = list(dict.fromkeys(self._file.outputs))
        logits = {name: self._logits(name) for name in outputs}
        if not logits:
            raise Refused("has no output")
        losses = _losses(self._file.properties, logits) or self._plain_losses(logits)
        wanted = self._leading_to(logits.values())
        layers: list[Layer] = []
        for layer in self._layers.values():
            if layer.name in wanted:
                layers += [layer, *(loss for loss in losses if loss.inputs == (layer.name,))]
        return layers

    def _logits(self, output: str) -> str:
        if output not in self._layer_of:
            raise Refused(f"output {readable(output)!r} is not made by any node from the images")
        layer = self._layer_of[output]
        if len(self._shapes[layer]) != 1:
            shape = "x".join(map(str, self._shapes[layer]))
            raise Refused(f"output {readable(output)!r} is an image {shape}; a model ends in one number per class")
        return layer

    def _plain_losses(self, logits: Mapping[str, str]) -> list[Layer]:
        names = ["loss"] if len(logits) == 1 else [f"loss_{output}" for output in logits]
        return [
            Layer(name=self._named(name), op=ops.SoftmaxCrossEntropy(), inputs=(layer,))
            for name, layer in zip(names, logits.values(), strict=True)
        ]

    def _leading_to(self, ends: Iterable[str]) -> set[str]:
        found: set[str] = set()
        waiting = list(ends)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(self._layers[name].inputs)
        return found


class _ToldLoss(msgspec.Struct, frozen=True, kw_only=True):
    """A loss, as a file that Deepstone wrote tells it: `output` is the output of the file that it is of."""

    name: str
    weight: int | float
    output: str


def _losses(properties: Mapping[str, str], logits: Mapping[str, str]) -> list[Layer]:
    """Names and weights of the losses, which a file that Deepstone wrote tells."""
    if LOSSES not in properties:
        return []
    try:
        told = msgspec.json.decode(properties[LOSSES], type=list[_ToldLoss])
        return [
            Layer(
                name=each.name,
                op=make_op(ops.SoftmaxCrossEntropy.kind, {"weight": each.weight}),
                inputs=(logits[each.output],),
            )
            for each in told
        ]
    except (msgspec.DecodeError, ValueError, TypeError, KeyError, RecursionError):
        raise Refused(f"its property {LOSSES} is not what `deepstone models --export` writes") from None


# ---- one handler for each kind of node


def _conv(reader: _Reader, node: Node) -> None:
    weight = reader.constant(node, 1, "weight")
    bias = reader.optional(node, 2, "bias")
    reader.put(node, read_conv(node, reader.image(node), weight, bias=bias is not None))


def _max_pool(reader: _Reader, node: Node) -> None:
    reader.put(node, read_max_pool(node, reader.image(node)))


def _average_pool(reader: _Reader, node: Node) -> None:
    reader.put(node, read_average_pool(node, reader.image(node)))


def _global_pool(reader: _Reader, node: Node) -> None:
    Attributes(node).finish()
    reader.put(node, ops.GlobalPool())


def _reduce_mean(reader: _Reader, node: Node) -> None:
    """The mean over height and width is a global pool."""
    attributes = Attributes(node)
    axes = attributes.wholes("axes") or onnx_sizes.whole_numbers(reader.optional(node, 1, "axes"), "what axes it has")
    keeps = bool(attributes.whole("keepdims", 1))
    attributes.ignore("noop_with_empty_axes")
    attributes.finish()
    reader.image(node)
    if {axis % 4 for axis in axes} != {2, 3}:
        raise Refused("only the mean over height and width has a layer here")
    pool = reader.put(node, ops.GlobalPool())
    if not keeps:
        reader.put(node, ops.Flatten(), pool, part=".flat")


def _gemm(reader: _Reader, node: Node) -> None:
    attributes = Attributes(node)
    attributes.only("alpha", 1.0, default=1.0)
    attributes.only("transA", 0, default=0)
    across = bool(attributes.whole("transB", 0))
    bias = reader.optional(node, 2, "bias")
    if bias is not None:
        attributes.only("beta", 1.0, default=1.0)
    attributes.ignore("beta", "broadcast")
    attributes.finish()
    shape = reader.constant(node, 1, "weight").shape
    _dense(reader, node, shape[::-1] if across else shape, bias=bias)


def _matmul(reader: _Reader, node: Node) -> None:
    Attributes(node).finish()
    _dense(reader, node, reader.constant(node, 1, "right side").shape, bias=None)


def _dense(reader: _Reader, node: Node, weight: tuple[int, ...], *, bias: Constant | None) -> None:
    """`weight` as (inputs, features)."""
    given = reader.shape(node)
    if len(given) != 1 or len(weight) != 2 or weight[0] != given[0]:
        raise Refused(f"its weight {list(weight)} does not fit an input of {list(given)}")
    if bias is not None and math.prod(bias.shape) != weight[1]:
        raise Refused(f"its bias {list(bias.shape)} does not fit {weight[1]} features")
    reader.put(node, ops.Dense(features=weight[1], bias=bias is not None))


def _relu(reader: _Reader, node: Node) -> None:
    Attributes(node).finish()
    reader.put(node, ops.Relu())


def _batch_norm(reader: _Reader, node: Node) -> None:
    attributes = Attributes(node)
    epsilon, theirs = attributes.number("epsilon", 1e-5), attributes.number("momentum", 0.9)
    attributes.only("spatial", 1, default=1)
    attributes.ignore("training_mode", "is_test", "consumed_inputs")
    attributes.finish()
    channels = reader.image(node)[0]
    for number, what in enumerate(("scale", "bias", "mean", "variance"), start=1):
        if reader.constant(node, number, what).shape != (channels,):
            raise Refused(f"its {what} does not fit {channels} channels")
    # Theirs is the share of the old statistics; it is kept in 32 bits, so more than 7 digits would be noise.
    reader.put(node, ops.BatchNorm(epsilon=epsilon, momentum=round(1 - theirs, 7)))


def _lrn(reader: _Reader, node: Node) -> None:
    attributes = Attributes(node)
    op = ops.Lrn(
        size=attributes.whole("size", 0),
        alpha=attributes.number("alpha", 1e-4),
        beta=attributes.number("beta", 0.75),
        k=attributes.number("bias", 1.0),
    )
    attributes.finish()
    reader.put(node, op)


def _lrn_within(reader: _Reader, node: Node) -> None:
    attributes = Attributes(node)
    op = ops.Lrn(
        size=attributes.pair("kernel_shape")[0],
        alpha=attributes.number("alpha", 1e-4),
        beta=attributes.number("beta", 0.75),
        k=attributes.number("k", 1.0),
        within_channel=True,
    )
    attributes.ignore("pads")
    attributes.finish()
    reader.put(node, op)


def _dropout(reader: _Reader, node: Node) -> None:
    attributes = Attributes(node)
    rate = attributes.number("ratio", 0.5)
    attributes.ignore("seed", "is_test")
    attributes.finish()
    given = reader.optional(node, 1, "ratio")
    if given is not None:
        if given.values is None or len(given.values) != 1:
            raise Refused("its ratio is not one number")
        rate = float(given.values[0])
    reader.put(node, ops.Dropout(rate=rate))


def _add(reader: _Reader, node: Node) -> None:
    attributes = Attributes(node)
    attributes.ignore("axis", "broadcast")
    attributes.finish()
    constants = [reader.is_constant(name) for name in node.inputs]
    if True not in constants:
        reader.put(node, ops.Add(), *(reader.source(node, number) for number in range(len(node.inputs))))
        return
    number = constants.index(False)
    if len(constants) != 2 or not reader.give_bias(node, number, reader.constant(node, 1 - number, "other side")):
        raise Refused("adds a constant; only the bias of a convolution or dense layer has a place here")


def _concat(reader: _Reader, node: Node) -> None:
    attributes = Attributes(node)
    attributes.only("axis", 1, -3, default=1)
    attributes.finish()
    reader.image(node)
    reader.put(node, ops.Concat(), *(reader.source(node, number) for number in range(len(node.inputs))))


def _flatten(reader: _Reader, node: Node) -> None:
    attributes = Attributes(node)
    shape = reader.shape(node)
    attributes.only("axis", 1, -len(shape), default=1)
    attributes.finish()
    _make_flat(reader, node)


def _make_flat(reader: _Reader, node: Node) -> None:
    if len(reader.shape(node)) == 3:
        reader.put(node, ops.Flatten())
    else:
        reader.hand_on(node)


def _reshape(reader: _Reader, node: Node) -> None:
    attributes = Attributes(node)
    wanted = attributes.wholes("shape") or onnx_sizes.whole_numbers(reader.optional(node, 1, "shape"), "its shape")
    attributes.only("allowzero", 0, default=0)
    attributes.finish()
    shape = reader.shape(node)
    before = (onnx_sizes.BATCH, *shape)
    kept = [before[place] if side == 0 and place < len(before) else side for place, side in enumerate(wanted)]
    if kept and reader.is_batch(kept[0]) and kept.count(-1) <= 1:
        if len(kept) == 2 and kept[1] in (-1, math.prod(shape)):
            _make_flat(reader, node)
            return
        if tuple(kept[1:]) == shape:
            reader.hand_on(node)
            return
    raise Refused(f"turns {list(shape)} into {list(wanted)}; only making each image flat has a layer here")


def _squeeze(reader: _Reader, node: Node) -> None:
    attributes = Attributes(node)
    axes = attributes.wholes("axes") or onnx_sizes.whole_numbers(reader.optional(node, 1, "axes"), "what axes it has")
    attributes.finish()
    image = reader.image(node)
    if {axis % 4 for axis in axes} != {2, 3} or image[1:] != (1, 1):
        raise Refused("only height and width of 1 can be squeezed away")
    reader.put(node, ops.Flatten())


def _softmax(reader: _Reader, node: Node) -> None:
    """At the end it is part of the loss that we put there."""
    attributes = Attributes(node)
    attributes.only("axis", 1, -1, default=1)
    attributes.finish()
    if len(reader.shape(node)) != 1 or not reader.ends_here(node):
        raise Refused("has a layer here only at the end, on one number per class")
    reader.hand_on(node)


def _hand_on(reader: _Reader, node: Node) -> None:
    reader.hand_on(node)


def _shape(reader: _Reader, node: Node) -> None:
    reader.keep(node, onnx_sizes.shape_of(node, reader.shape(node)))


_HANDLERS: Final[Mapping[str, Callable[[_Reader, Node], None]]] = {
    "Conv": _conv,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_pool,
    "ReduceMean": _reduce_mean,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Relu": _relu,
    "BatchNormalization": _batch_norm,
    "LRN": _lrn,
    WITHIN_CHANNEL: _lrn_within,
    "Dropout": _dropout,
    "Add": _add,
    "Sum": _add,
    "Concat": _concat,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Identity": _hand_on,
    "Cast": _hand_on,
    "Shape": _shape,
}
