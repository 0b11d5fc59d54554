"""Operations that slide a window over images: convolutions, pools and their padding.

TensorFlow's CPU kernels lack gradients of convolutions with groups or dilation, so others stand in for these. Padding
and rounding up are worked out here; windows of pools that leave the image get divisors as constants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from deepstone.backends.tensorflow.settings import Settings
from deepstone.graph.ops import AveragePool, Conv, MaxPool, Pad, Shape
from deepstone.graph.padding import reached_pad, same_pad

Tensor: TypeAlias = Any
Convolve: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # image, weight
Pool: TypeAlias = Callable[..., Tensor]


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
    """Return the image with padding, if the operation takes it.

    oneDNN lacks gradients of explicit padding (for some, TensorFlow's own kernels replace it, at half the speed; for
    depthwise ones, the process aborts). So on a CPU the padding is TensorFlow's SAME or a separate operation.
    """
    padding = _explicit_padding(op.pad, settings)
    if not any(op.pad):
        return lambda x, weight: convolve(x, weight, "VALID")
    if not settings.limited_kernels:
        return lambda x, weight: convolve(x, weight, padding)
    if op.dilation == (1, 1) and op.pad == same_pad(op, image):
        return lambda x, weight: convolve(x, weight, "SAME")
    return lambda x, weight: convolve(tf.pad(x, padding), weight, "VALID")


def _group_by_group(one: Convolve, groups: int, axis: int) -> Convolve:
    """Convolve groups without a grouped kernel: split, convolve, join."""

    def convolve(x: Tensor, weight: Tensor) -> Tensor:
        parts = zip(tf.split(x, groups, axis), tf.split(weight, groups, 3), strict=True)
        return tf.concat([one(part, part_weight) for part, part_weight in parts], axis)

    return convolve


def _dilated_by_hand(op: Conv, settings: Settings) -> Convolve:
    """Convolve with dilation: gather pixels that are a dilation apart into separate images. A stride follows; no
    network has both."""
    padding = _explicit_padding(op.pad, settings)
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
    """Convolve each channel separately; the weight is (height, width, channel, outputs per channel)."""
    rows, columns = op.stride
    stride = [1, rows, columns, 1] if settings.channels_last else [1, 1, rows, columns]
    dilation, data_format = list(op.dilation), settings.data_format
    return _padded(
        op,
        image,
        settings,
        lambda x, weight, padding: tf.nn.depthwise_conv2d(x, weight, stride, padding, data_format, dilation),
    )


def max_pool(op: MaxPool, image: Shape, settings: Settings) -> Pool:
    """Pool with a separate padding operation if SAME does not fit: oneDNN and XLA take no explicit padding of pools.

    SAME does not fit in XLA either: among equal maxima it does not always take the first.
    """
    pad = reached_pad(op, image)
    kernel, stride, data_format = list(op.kernel), list(op.stride), settings.data_format
    if not any(pad):
        return lambda xs, _arrays, _pass: tf.nn.max_pool2d(xs[0], kernel, stride, "VALID", data_format)
    if pad == same_pad(op, image) and not settings.xla:
        return lambda xs, _arrays, _pass: tf.nn.max_pool2d(xs[0], kernel, stride, "SAME", data_format)
    padding = _explicit_padding(pad, settings)
    return lambda xs, _arrays, _pass: tf.nn.max_pool2d(
        tf.pad(xs[0], padding, constant_values=-np.inf), kernel, stride, "VALID", data_format
    )


def average_pool(op: AveragePool, image: Shape, settings: Settings) -> Pool:
    pad = reached_pad(op, image)
    kernel, stride, data_format = list(op.kernel), list(op.stride), settings.data_format
    if not any(pad):
        return lambda xs, _arrays, _pass: tf.nn.avg_pool2d(xs[0], kernel, stride, "VALID", data_format)
    divisor = _divisors(op, image)
    if not op.count_pad and pad == same_pad(op, image):
        return lambda xs, _arrays, _pass: tf.nn.avg_pool2d(xs[0], kernel, stride, "SAME", data_format)
    padding = _explicit_padding(pad, settings)

    def mean(x: Tensor) -> Tensor:
        return tf.nn.avg_pool2d(tf.pad(x, padding), kernel, stride, "VALID", data_format)

    area = op.kernel[0] * op.kernel[1]
    if np.all(divisor == area):
        return lambda xs, _arrays, _pass: mean(xs[0])
    correction = np.expand_dims(area / divisor, (0, settings.channel_axis)).astype(settings.activations.as_numpy_dtype)
    return lambda xs, _arrays, _pass: mean(xs[0]) * correction


def _divisors(op: AveragePool, image: Shape) -> Any:
    """Return how many places of each window count."""
    _, *counts = op.output([image])
    top, bottom, left, right = op.pad
    sides = [
        _counted(count, stride, kernel, size, pad, count_pad=op.count_pad)
        for count, stride, kernel, size, pad in zip(
            counts, op.stride, op.kernel, image[1:], ((top, bottom), (left, right)), strict=True
        )
    ]
    return np.outer(*sides)


def _counted(count: int, stride: int, kernel: int, size: int, pad: tuple[int, int], *, count_pad: bool) -> Any:
    starts = np.arange(count) * stride - pad[0]
    first, last = (-pad[0], size + pad[1]) if count_pad else (0, size)
    return np.minimum(starts + kernel, last) - np.maximum(starts, first)


def _explicit_padding(pad: Pad, settings: Settings) -> list[list[int]]:
    top, bottom, left, right = pad
    sides = [[top, bottom], [left, right]]
    return [[0, 0], *sides, [0, 0]] if settings.channels_last else [[0, 0], [0, 0], *sides]
