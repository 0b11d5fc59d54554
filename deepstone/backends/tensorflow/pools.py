"""Pools. Padding and rounding up are worked out here; windows that leave the image get divisors as constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from deepstone.backends.tensorflow.padding import explicit_padding, reached_pad, same_pad
from deepstone.backends.tensorflow.settings import Settings
from deepstone.graph.ops import AveragePool, MaxPool, Shape

Tensor: TypeAlias = Any
PoolFunction: TypeAlias = Callable[..., Tensor]


def max_pool(op: MaxPool, image: Shape, settings: Settings) -> PoolFunction:
    """Padded by an operation of its own where SAME will not do: oneDNN and XLA take no explicit padding of pools.

    SAME will not do in XLA either: of equal maxima it does not always take the first.
    """
    pad = reached_pad(op, image)
    kernel, stride, data_format = list(op.kernel), list(op.stride), settings.data_format
    if not any(pad):
        return lambda xs, _held, _pass: tf.nn.max_pool2d(xs[0], kernel, stride, "VALID", data_format)
    if pad == same_pad(op, image) and not settings.xla:
        return lambda xs, _held, _pass: tf.nn.max_pool2d(xs[0], kernel, stride, "SAME", data_format)
    padding = explicit_padding(pad, settings)
    return lambda xs, _held, _pass: tf.nn.max_pool2d(
        tf.pad(xs[0], padding, constant_values=-np.inf), kernel, stride, "VALID", data_format
    )


def average_pool(op: AveragePool, image: Shape, settings: Settings) -> PoolFunction:
    pad = reached_pad(op, image)
    kernel, stride, data_format = list(op.kernel), list(op.stride), settings.data_format
    if not any(pad):
        return lambda xs, _held, _pass: tf.nn.avg_pool2d(xs[0], kernel, stride, "VALID", data_format)
    divisor = divisors(op, image)
    if not op.count_pad and pad == same_pad(op, image):
        return lambda xs, _held, _pass: tf.nn.avg_pool2d(xs[0], kernel, stride, "SAME", data_format)
    padding = explicit_padding(pad, settings)

    def mean(x: Tensor) -> Tensor:
        return tf.nn.avg_pool2d(tf.pad(x, padding), kernel, stride, "VALID", data_format)

    area = op.kernel[0] * op.kernel[1]
    if np.all(divisor == area):
        return lambda xs, _held, _pass: mean(xs[0])
    correction = np.expand_dims(area / divisor, (0, settings.channel_axis)).astype(settings.activations.as_numpy_dtype)
    return lambda xs, _held, _pass: mean(xs[0]) * correction


def divisors(op: AveragePool, image: Shape) -> Any:
    """How many places of each window count."""
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
