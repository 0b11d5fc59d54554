"""Each layer as the TensorFlow one would write by hand, as a function of its inputs, parameters and buffers.

The functions are made once. A program calls them one after the other while TensorFlow records it; run eagerly, that is
the step itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import tensorflow as tf

from deepstone.backends.base import Unsupported
from deepstone.backends.tensorflow.arrays import Arrangement, is_depthwise
from deepstone.backends.tensorflow.norms import batch_norm, channel_response_norm, pixel_response_norm
from deepstone.backends.tensorflow.settings import Settings
from deepstone.backends.tensorflow.windows import average_pool, convolution, depthwise_convolution, max_pool
from deepstone.graph import ops
from deepstone.graph.graph import Graph, Layer

Tensor: TypeAlias = Any
Arrays: TypeAlias = Mapping[str, Tensor]  # a layer's parameters and buffers by name, as tensors or variables
Side: TypeAlias = Literal["N...C", "NC..."]  # where the channels are, as `tf.nn.bias_add` has it


@dataclass(kw_only=True, slots=True)
class Pass:
    """One pass over the layers: their additional inputs and outputs."""

    labels: Tensor
    number: Tensor  # of the step; what is dropped depends on it
    statistics: dict[str, Tensor] = field(default_factory=dict[str, Tensor])  # new buffers as "layer/name"


LayerFunction: TypeAlias = Callable[[Sequence[Tensor], Arrays, Pass], Tensor]


class Lowering:
    """Builds the functions of one graph's layers."""

    def __init__(self, graph: Graph, arrangement: Arrangement, settings: Settings) -> None:
        self._graph = graph
        self._arrangement = arrangement
        self._settings = settings

    def function(self, layer: Layer) -> LayerFunction:
        op = layer.op
        settings = self._settings
        axis = settings.channel_axis
        hard_sigmoid = _narrow_hard_sigmoid if settings.narrow else _hard_sigmoid
        match op:
            case ops.Conv():
                return self._conv(layer, op)
            case ops.Dense():
                return self._dense(op)
            case ops.BatchNorm():
                return self._batch_norm(layer, op)
            case ops.Relu():
                return lambda xs, _arrays, _pass: tf.nn.relu(xs[0])
            case ops.Clip():
                return _clip(op)
            case ops.Sigmoid():
                return lambda xs, _arrays, _pass: tf.sigmoid(xs[0])
            case ops.Tanh():
                return lambda xs, _arrays, _pass: tf.tanh(xs[0])
            case ops.Silu():
                return lambda xs, _arrays, _pass: tf.nn.silu(xs[0])
            case ops.HardSigmoid():
                return lambda xs, _arrays, _pass: hard_sigmoid(xs[0])
            case ops.HardSwish():
                return lambda xs, _arrays, _pass: xs[0] * hard_sigmoid(xs[0])
            case ops.MaxPool():
                return max_pool(op, self._graph.input_shapes(layer)[0], settings)
            case ops.AveragePool():
                return average_pool(op, self._graph.input_shapes(layer)[0], settings)
            case ops.GlobalPool():
                sides = [1, 2] if settings.channels_last else [2, 3]
                return lambda xs, _arrays, _pass: tf.reduce_mean(xs[0], sides, keepdims=True)
            case ops.Lrn():
                norm = pixel_response_norm if op.within_channel else channel_response_norm
                return norm(op, settings)
            case ops.Dropout():
                return self._dropout(layer, op)
            case ops.Add():
                if len(layer.inputs) == 2:
                    return lambda xs, _arrays, _pass: tf.add(xs[0], xs[1])
                return lambda xs, _arrays, _pass: tf.add_n(xs)
            case ops.Multiply():
                return self._multiply(layer)
            case ops.Concat():
                return lambda xs, _arrays, _pass: tf.concat(xs, axis)
            case ops.Slice():
                return self._slice(op)
            case ops.Shuffle():
                return self._shuffle(layer, op)
            case ops.Flatten():
                return self._flatten(layer)
            case ops.SoftmaxCrossEntropy():
                return self._loss(op)
            case _:
                raise Unsupported(f"tensorflow backend: no lowering of {op.kind} (layer {layer.name!r})")

    def _conv(self, layer: Layer, op: ops.Conv) -> LayerFunction:
        make = depthwise_convolution if is_depthwise(self._graph, layer) else convolution
        convolve = make(op, self._graph.input_shapes(layer)[0], self._settings)
        side = "N...C" if self._settings.channels_last else "NC..."
        cast, add_bias = self._cast, _bias_adder(side, narrow=self._settings.narrow)
        if not op.bias:
            return lambda xs, arrays, _pass: convolve(xs[0], cast(arrays["weight"]))
        return lambda xs, arrays, _pass: add_bias(convolve(xs[0], cast(arrays["weight"])), cast(arrays["bias"]))

    def _dense(self, op: ops.Dense) -> LayerFunction:
        cast, add_bias = self._cast, _bias_adder("N...C", narrow=self._settings.narrow)
        if not op.bias:
            return lambda xs, arrays, _pass: tf.matmul(xs[0], cast(arrays["weight"]))
        return lambda xs, arrays, _pass: add_bias(tf.matmul(xs[0], cast(arrays["weight"])), cast(arrays["bias"]))

    def _cast(self, parameter: Tensor) -> Tensor:
        activations = self._settings.activations
        return parameter if parameter.dtype == activations else tf.cast(parameter, activations)

    def _batch_norm(self, layer: Layer, op: ops.BatchNorm) -> LayerFunction:
        _, height, width = self._graph.shapes[layer.name]
        if self._settings.training and self._settings.batch * height * width < 2:
            raise Unsupported(
                f"layer {layer.name!r}: batch_norm needs two values per channel to train; raise the batch"
            )
        norm = batch_norm(op, self._settings)
        mean_name, variance_name = f"{layer.name}/running_mean", f"{layer.name}/running_var"
        training = self._settings.training

        def function(xs: Sequence[Tensor], arrays: Arrays, one_pass: Pass) -> Tensor:
            y, mean, variance = norm(xs[0], arrays)
            if training:
                one_pass.statistics[mean_name] = mean
                one_pass.statistics[variance_name] = variance
            return y

        return function

    def _dropout(self, layer: Layer, op: ops.Dropout) -> LayerFunction:
        if not self._settings.dropout:
            return lambda xs, _arrays, _pass: xs[0]
        digest = hashlib.sha256(f"{self._settings.seed}:{layer.name}".encode()).digest()
        key = int.from_bytes(digest[:4], "big")

        def function(xs: Sequence[Tensor], _arrays: Arrays, one_pass: Pass) -> Tensor:
            seed = tf.stack([tf.constant(key, tf.int64), one_pass.number])
            return tf.nn.experimental.stateless_dropout(xs[0], op.rate, seed)

        return function

    def _flatten(self, layer: Layer) -> LayerFunction:
        features = self._graph.shapes[layer.name][0]
        if self._arrangement.moves(layer):
            return lambda xs, _arrays, _pass: tf.reshape(tf.transpose(xs[0], [0, 3, 1, 2]), [-1, features])
        return lambda xs, _arrays, _pass: tf.reshape(xs[0], [-1, features])

    def _slice(self, op: ops.Slice) -> LayerFunction:
        taken = slice(op.first, op.first + op.channels)
        if self._settings.channels_last:
            return lambda xs, _arrays, _pass: xs[0][..., taken]
        return lambda xs, _arrays, _pass: xs[0][:, taken]

    def _shuffle(self, layer: Layer, op: ops.Shuffle) -> LayerFunction:
        channels, height, width = self._graph.shapes[layer.name]
        groups = [op.groups, channels // op.groups]
        if self._settings.channels_last:
            apart, order, whole = [-1, height, width, *groups], [0, 1, 2, 4, 3], [-1, height, width, channels]
        else:
            apart, order, whole = [-1, *groups, height, width], [0, 2, 1, 3, 4], [-1, channels, height, width]
        return lambda xs, _arrays, _pass: tf.reshape(tf.transpose(tf.reshape(xs[0], apart), order), whole)

    def _multiply(self, layer: Layer) -> LayerFunction:
        """Multiply; a flat gate gets a height and a width of 1."""
        first, second = self._graph.input_shapes(layer)
        if len(first) == len(second):
            return lambda xs, _arrays, _pass: xs[0] * xs[1]
        channels = min(first, second, key=len)[0]
        shape = [-1, 1, 1, channels] if self._settings.channels_last else [-1, channels, 1, 1]
        gate = 0 if len(first) == 1 else 1
        return lambda xs, _arrays, _pass: xs[1 - gate] * tf.reshape(xs[gate], shape)

    def _loss(self, op: ops.SoftmaxCrossEntropy) -> LayerFunction:
        """Return the mean loss over the batch; narrow scores are widened first, because the loss would hardly change
        otherwise."""
        narrow = self._settings.narrow

        def function(xs: Sequence[Tensor], _arrays: Arrays, one_pass: Pass) -> Tensor:
            scores = tf.cast(xs[0], tf.float32) if narrow else xs[0]
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=one_pass.labels, logits=scores)
            mean = tf.reduce_mean(losses)
            return mean if op.weight == 1.0 else mean * op.weight

        return function


def _clip(op: ops.Clip) -> LayerFunction:
    if (op.low, op.high) == (0.0, 6.0):
        return lambda xs, _arrays, _pass: tf.nn.relu6(xs[0])

    def function(xs: Sequence[Tensor], _arrays: Arrays, _pass: Pass) -> Tensor:
        """clip_by_value lets the gradient through at the limits themselves; relu6 and the graph do not."""
        x = xs[0]
        return tf.where((x > op.low) & (x < op.high), x, tf.stop_gradient(tf.clip_by_value(x, op.low, op.high)))

    return function


def _hard_sigmoid(x: Tensor) -> Tensor:
    return tf.nn.relu6(x + 3.0) / 6.0


def _narrow_hard_sigmoid(x: Tensor) -> Tensor:
    """Compute a hard sigmoid in a narrow type, where x + 3 may round to a limit that x does not reach."""
    return tf.cast(_hard_sigmoid(tf.cast(x, tf.float32)), x.dtype)


def _bias_adder(side: Side, *, narrow: bool) -> Callable[[Tensor, Tensor], Tensor]:
    if narrow:
        return _with_plain_sum(side)
    return lambda x, bias: tf.nn.bias_add(x, bias, side)


def _with_plain_sum(side: Side) -> Callable[[Tensor, Tensor], Tensor]:
    """Compute the bias's gradient by a plain sum in fp32. On a CPU BiasAddGrad adds bf16 in bf16, 79 % off over 97,000
    places."""

    def add(x: Tensor, bias: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
        over = [axis for axis in range(len(x.shape)) if axis != (1 if side == "NC..." else len(x.shape) - 1)]

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            return upstream, tf.reduce_sum(upstream, over)

        return tf.nn.bias_add(x, bias, side), gradient

    adder = tf.custom_gradient(add)
    return lambda x, bias: adder(x, tf.convert_to_tensor(bias))
