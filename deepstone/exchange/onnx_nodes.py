"""Converts each kind of ONNX node to a layer, or to nothing if it only renames or computes a shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from deepstone.exchange import onnx_channels, onnx_sizes
from deepstone.exchange.onnx_attributes import Attributes, Refused, read_average_pool, read_conv, read_max_pool
from deepstone.exchange.onnx_file import WITHIN_CHANNEL, Constant, Node
from deepstone.exchange.onnx_reader import Handlers, Reader
from deepstone.graph import ops
from deepstone.graph.ops import Op


def _conv(reader: Reader, node: Node) -> None:
    weight = reader.constant(node, 1, "weight")
    bias = reader.optional(node, 2, "bias")
    reader.put(node, read_conv(node, reader.image(node), weight, bias=bias is not None))


def _max_pool(reader: Reader, node: Node) -> None:
    reader.put(node, read_max_pool(node, reader.image(node)))


def _average_pool(reader: Reader, node: Node) -> None:
    reader.put(node, read_average_pool(node, reader.image(node)))


def _global_pool(reader: Reader, node: Node) -> None:
    Attributes(node).finish()
    reader.put(node, ops.GlobalPool())


def _reduce_mean(reader: Reader, node: Node) -> None:
    """Convert the mean over height and width to a global pool."""
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


def _gemm(reader: Reader, node: Node) -> None:
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


def _matmul(reader: Reader, node: Node) -> None:
    Attributes(node).finish()
    _dense(reader, node, reader.constant(node, 1, "right side").shape, bias=None)


def _dense(reader: Reader, node: Node, weight: tuple[int, ...], *, bias: Constant | None) -> None:
    """Add a dense layer; `weight` is (inputs, features)."""
    given = reader.shape(node)
    if len(given) != 1 or len(weight) != 2 or weight[0] != given[0]:
        raise Refused(f"its weight {list(weight)} does not fit an input of {list(given)}")
    if bias is not None and math.prod(bias.shape) != weight[1]:
        raise Refused(f"its bias {list(bias.shape)} does not fit {weight[1]} features")
    reader.put(node, ops.Dense(features=weight[1], bias=bias is not None))


def _activation(op: Op) -> Callable[[Reader, Node], None]:
    def put(reader: Reader, node: Node) -> None:
        Attributes(node).finish()
        reader.put(node, op)

    return put


def _clip(reader: Reader, node: Node) -> None:
    """Add a clip. Old files have the limits in attributes, newer ones in constant inputs."""
    attributes = Attributes(node)
    limits: list[float | None] = []
    for number, what in enumerate(("min", "max"), start=1):
        given = reader.optional(node, number, what)
        if given is not None and (given.values is None or len(given.values) != 1):
            raise Refused(f"its {what} is not one number that the file holds")
        own = attributes.number(what, math.nan) if what in node.attributes else None
        limits.append(own if given is None or given.values is None else float(given.values[0]))
    attributes.finish()
    low, high = limits
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        if low == 0 and (high is None or high == math.inf):
            reader.put(node, ops.Relu())
            return
        raise Refused(f"clips from {low} to {high}; only two finite limits, or 0 and none, have a layer here")
    reader.put(node, ops.Clip(low=low, high=high))


def _hard_sigmoid(reader: Reader, node: Node) -> None:
    attributes = Attributes(node)
    alpha, beta = attributes.number("alpha", 0.2), attributes.number("beta", 0.5)
    attributes.finish()
    if not math.isclose(alpha, 1 / 6, rel_tol=1e-6) or beta != 0.5:
        raise Refused(f"alpha={alpha} and beta={beta} have no layer here; only 1/6 and 0.5, as torch has them, do")
    reader.put(node, ops.HardSigmoid())


def _swish(reader: Reader, node: Node) -> None:
    attributes = Attributes(node)
    attributes.only("alpha", 1.0, default=1.0)
    attributes.finish()
    reader.put(node, ops.Silu())


def _multiply(reader: Reader, node: Node) -> None:
    """Add a product. Exporters write SiLU as x · sigmoid(x), and some write hard swish as x · hard_sigmoid(x)."""
    attributes = Attributes(node)
    attributes.ignore("axis", "broadcast")
    attributes.finish()
    if any(reader.is_constant(name) for name in node.inputs):
        raise Refused("multiplies by a constant; only the product of two layers has a place here")
    for kind, fused in ((ops.Sigmoid, ops.Silu()), (ops.HardSigmoid, ops.HardSwish())):
        x = reader.of_own_input(node, kind)
        if x:
            reader.put(node, fused, x)
            return
    sources = [reader.source(node, number) for number in range(len(node.inputs))]
    flat = [
        len(reader.shape(node, number)) == 1 and not reader.is_gate(name) for number, name in enumerate(node.inputs)
    ]
    if any(flat) and not all(flat):
        raise Refused("multiplies an image by flat numbers, which are not one for each of its channels")
    reader.put(node, ops.Multiply(), *sources)


def _batch_norm(reader: Reader, node: Node) -> None:
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


def _lrn(reader: Reader, node: Node) -> None:
    attributes = Attributes(node)
    op = ops.Lrn(
        size=attributes.whole("size", 0),
        alpha=attributes.number("alpha", 1e-4),
        beta=attributes.number("beta", 0.75),
        k=attributes.number("bias", 1.0),
    )
    attributes.finish()
    reader.put(node, op)


def _lrn_within(reader: Reader, node: Node) -> None:
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


def _dropout(reader: Reader, node: Node) -> None:
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


def _add(reader: Reader, node: Node) -> None:
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


def _concat(reader: Reader, node: Node) -> None:
    attributes = Attributes(node)
    attributes.only("axis", 1, -3, default=1)
    attributes.finish()
    reader.image(node)
    if len(node.inputs) == 1:
        reader.hand_on(node)
        return
    reader.put(node, ops.Concat(), *(reader.source(node, number) for number in range(len(node.inputs))))


def _flatten(reader: Reader, node: Node) -> None:
    attributes = Attributes(node)
    shape = reader.shape(node)
    attributes.only("axis", 1, -len(shape), default=1)
    attributes.finish()
    _make_flat(reader, node)


def _make_flat(reader: Reader, node: Node) -> None:
    if len(reader.shape(node)) == 3:
        reader.put(node, ops.Flatten())
    else:
        reader.hand_on(node)


def _reshape(reader: Reader, node: Node) -> None:
    attributes = Attributes(node)
    wanted = attributes.wholes("shape") or onnx_sizes.whole_numbers(reader.optional(node, 1, "shape"), "its shape")
    attributes.ignore("allowzero")  # no side of an array here is 0, so a 0 can only stand for the batch
    attributes.finish()
    shape = reader.shape(node)
    before = (onnx_sizes.BATCH, *shape)
    kept = [before[place] if side == 0 and place < len(before) else side for place, side in enumerate(wanted)]
    if kept and reader.is_batch(kept[0]) and kept.count(-1) <= 1:
        if onnx_channels.reshape_groups(reader, node, kept):
            return
        if len(kept) == 2 and kept[1] in (-1, math.prod(shape)):
            _make_flat(reader, node)
            return
        if tuple(kept[1:]) == shape:
            reader.hand_on(node)
            return
        if len(shape) == 1 and len(kept) == 4 and kept[1] in (-1, shape[0]) and tuple(kept[2:]) == (1, 1):
            reader.hand_on_as_gate(node)
            return
    raise Refused(f"turns {list(shape)} into {list(wanted)}; only making each image flat has a layer here")


def _unsqueeze(reader: Reader, node: Node) -> None:
    """Convert one number per channel to an image of one pixel, which a product broadcasts."""
    attributes = Attributes(node)
    axes = attributes.wholes("axes") or onnx_sizes.whole_numbers(reader.optional(node, 1, "axes"), "what axes it has")
    attributes.finish()
    if len(reader.shape(node)) != 1 or not {axis % 4 for axis in axes} <= {2, 3}:
        raise Refused("only one number per channel can get a height and a width of 1")
    reader.hand_on_as_gate(node)


def _expand(reader: Reader, node: Node) -> None:
    Attributes(node).finish()
    shape = reader.shape(node)
    if shape[1:] not in ((), (1, 1)) or (len(shape) == 1 and not reader.is_gate(node.inputs[0])):
        raise Refused("only one number per channel can be spread over an image")
    reader.hand_on_as_gate(node)


def _squeeze(reader: Reader, node: Node) -> None:
    attributes = Attributes(node)
    axes = attributes.wholes("axes") or onnx_sizes.whole_numbers(reader.optional(node, 1, "axes"), "what axes it has")
    attributes.finish()
    image = reader.image(node)
    if {axis % 4 for axis in axes} != {2, 3} or image[1:] != (1, 1):
        raise Refused("only height and width of 1 can be squeezed away")
    reader.put(node, ops.Flatten())


def _softmax(reader: Reader, node: Node) -> None:
    """Skip a final softmax, which is part of our loss."""
    attributes = Attributes(node)
    attributes.only("axis", 1, -1, default=1)
    attributes.finish()
    if len(reader.shape(node)) != 1 or not reader.ends_here(node):
        raise Refused("has a layer here only at the end, on one number per class")
    reader.hand_on(node)


def _hand_on(reader: Reader, node: Node) -> None:
    reader.hand_on(node)


def _shape(reader: Reader, node: Node) -> None:
    reader.keep(node, onnx_sizes.shape_of(node, reader.shape(node)))


HANDLERS: Final[Handlers] = {
    "Conv": _conv,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_pool,
    "ReduceMean": _reduce_mean,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Relu": _activation(ops.Relu()),
    "Sigmoid": _activation(ops.Sigmoid()),
    "Tanh": _activation(ops.Tanh()),
    "HardSwish": _activation(ops.HardSwish()),
    "HardSigmoid": _hard_sigmoid,
    "Swish": _swish,
    "Clip": _clip,
    "Mul": _multiply,
    "BatchNormalization": _batch_norm,
    "LRN": _lrn,
    WITHIN_CHANNEL: _lrn_within,
    "Dropout": _dropout,
    "Add": _add,
    "Sum": _add,
    "Concat": _concat,
    "Split": onnx_channels.split,
    "Slice": onnx_channels.slice_,
    "Transpose": onnx_channels.transpose,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Expand": _expand,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Identity": _hand_on,
    "Cast": _hand_on,
    "Shape": _shape,
}
