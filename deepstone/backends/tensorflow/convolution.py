"""Convolutions, and what stands in for those whose gradients TensorFlow's CPU kernels lack: groups and dilation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

from deepstone.backends.tensorflow.padding import explicit_padding, same_pad
from deepstone.backends.tensorflow.settings import Settings
from deepstone.graph.ops import Conv, Shape

Tensor: TypeAlias = Any
Convolve: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # image, weight


def convolution(op: Conv, image: Shape, settings: Settings) -> Convolve:
    by_hand = op.dilation != (1, 1) and settings.limited_kernels
    one = _dilated_by_hand(op, settings) if by_hand else _plain(op, image, settings)
    if op.groups > 1 and settings.limited_kernels:
        return _group_by_group(one, op.groups, settings.channel_axis)
    return one


def _plain(op: Conv, image: Shape, settings: Settings) -> Convolve:
    stride, dilation, data_format = list(op.stride), list(op.dilation), settings.data_format
    return _padded(
        op,
        image,
        settings,
        lambda x, weight, padding: tf.nn.conv2d(x, weight, stride, padding, data_format, dilation),
    )


def _padded(op: Conv, image: Shape, settings: Settings, convolve: Callable[[Tensor, Tensor, Any], Tensor]) -> Convolve:
    """With its padding where the operation takes it.

    oneDNN has no gradients of explicit padding (for some, TensorFlow's own kernels step in, at half the speed; for
    depthwise ones, the process aborts), so on a CPU the padding is TensorFlow's SAME or an operation of its own.
    """
    padding = explicit_padding(op.pad, settings)
    if not any(op.pad):
        return lambda x, weight: convolve(x, weight, "VALID")
    if not settings.limited_kernels:
        return lambda x, weight: convolve(x, weight, padding)
    if op.dilation == (1, 1) and op.pad == same_pad(op, image):
        return lambda x, weight: convolve(x, weight, "SAME")
    return lambda x, weight: convolve(tf.pad(x, padding), weight, "VALID")


def _group_by_group(one: Convolve, groups: int, axis: int) -> Convolve:
    """As it was done before there were grouped kernels: split, convolve, join."""

    def convolve(x: Tensor, weight: Tensor) -> Tensor:
        parts = zip(tf.split(x, groups, axis), tf.split(weight, groups, 3), strict=True)
        return tf.concat([one(part, part_weight) for part, part_weight in parts], axis)

    return convolve


def _dilated_by_hand(op: Conv, settings: Settings) -> Convolve:
    """Pixels a dilation apart are gathered into images of their own. A stride is taken after it, as nobody has both."""
    padding = explicit_padding(op.pad, settings)
    rows, columns = op.stride
    data_format = settings.data_format

    def convolve(x: Tensor, weight: Tensor) -> Tensor:
        y = tf.nn.with_space_to_batch(
            tf.pad(x, padding),
            list(op.dilation),
            "VALID",
            lambda gathered, *_: tf.nn.conv2d(gathered, weight, 1, "VALID", data_format),
            data_format=data_format,
        )
        if op.stride == (1, 1):
            return y
        return y[:, ::rows, ::columns] if settings.channels_last else y[:, :, ::rows, ::columns]

    return convolve


def depthwise_convolution(op: Conv, image: Shape, settings: Settings) -> Convolve:
    """Each channel by itself; the weight is (height, width, channel, outputs per channel)."""
    rows, columns = op.stride
    stride = [1, rows, columns, 1] if settings.channels_last else [1, 1, rows, columns]
    dilation, data_format = list(op.dilation), settings.data_format
    return _padded(
        op,
        image,
        settings,
        lambda x, weight, padding: tf.nn.depthwise_conv2d(x, weight, stride, padding, data_format, dilation),
    )
