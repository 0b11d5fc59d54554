"""Normalizations. TensorFlow has kernels for the common cases; the rest is written out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from deepstone.backends.tensorflow.settings import Settings
from deepstone.graph.ops import BatchNorm, Lrn

Tensor: TypeAlias = Any
Norm: TypeAlias = Callable[[Tensor, Mapping[str, Tensor]], tuple[Tensor, Tensor, Tensor]]  # y, new mean, new variance
NormFunction: TypeAlias = Callable[..., Tensor]


def batch_norm(op: BatchNorm, settings: Settings) -> Norm:
    """Normalize over the batch. The kernel computes statistics in fp32 for narrower images and lacks double
    precision."""
    return _norm_by_hand(op, settings) if settings.activations == tf.float64 else _norm_by_kernel(op, settings)


def _norm_by_kernel(op: BatchNorm, settings: Settings) -> Norm:
    """Normalize by FusedBatchNormV3, which itself mixes the batch's mean and unbiased variance into the running
    ones."""
    training, data_format = settings.training, settings.data_format
    share = op.momentum if training else 1.0

    def norm(x: Tensor, arrays: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=_wide(arrays["weight"]),
            offset=_wide(arrays["bias"]),
            mean=arrays["running_mean"],
            variance=arrays["running_var"],
            epsilon=op.epsilon,
            exponential_avg_factor=share,
            data_format=data_format,
            is_training=training,
        )
        return y, mean, variance

    return norm


def _wide(parameter: Tensor) -> Tensor:
    return parameter if parameter.dtype == tf.float32 else tf.cast(parameter, tf.float32)


def _norm_by_hand(op: BatchNorm, settings: Settings) -> Norm:
    over = [0, 1, 2] if settings.channels_last else [0, 2, 3]
    shape = [1, 1, 1, -1] if settings.channels_last else [1, -1, 1, 1]

    def norm(x: Tensor, arrays: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        running_mean, running_variance = arrays["running_mean"], arrays["running_var"]
        mean, variance = tf.nn.moments(x, over) if settings.training else (running_mean, running_variance)
        y = tf.nn.batch_normalization(
            x,
            tf.reshape(mean, shape),
            tf.reshape(variance, shape),
            tf.reshape(arrays["bias"], shape),
            tf.reshape(arrays["weight"], shape),
            op.epsilon,
        )
        values = tf.cast(tf.size(x) / tf.size(mean), x.dtype)
        return (
            y,
            (1.0 - op.momentum) * running_mean + op.momentum * mean,
            (1.0 - op.momentum) * running_variance + op.momentum * variance * (values / (values - 1.0)),
        )

    return norm


def channel_response_norm(op: Lrn, settings: Settings) -> NormFunction:
    """Normalize over channels. TensorFlow's kernel takes half the window and an undivided alpha; fp32 and channels last
    only."""
    alpha, half = op.alpha / op.size, op.size // 2
    if settings.activations == tf.float32 and settings.channels_last:
        return lambda xs, _arrays, _pass: tf.nn.local_response_normalization(xs[0], half, op.k, alpha, op.beta)
    axis = settings.channel_axis
    padding = [[half, half] if side == axis else [0, 0] for side in range(4)]
    firsts = range(op.size)

    def function(xs: Any, _arrays: Any, _pass: Any) -> Tensor:
        x = xs[0]
        squares = tf.pad(tf.square(x), padding)
        windows = [tf.slice(squares, [first if side == axis else 0 for side in range(4)], x.shape) for first in firsts]
        return x * tf.pow(op.k + alpha * tf.add_n(windows), -op.beta)

    return function


def pixel_response_norm(op: Lrn, settings: Settings) -> NormFunction:
    """Normalize over pixels. The mean over a padded window divides by the window's full area, as in the formula."""
    half = op.size // 2
    sides = [[half, half], [half, half]]
    padding = [[0, 0], *sides, [0, 0]] if settings.channels_last else [[0, 0], [0, 0], *sides]
    data_format = settings.data_format

    def function(xs: Any, _arrays: Any, _pass: Any) -> Tensor:
        x = xs[0]
        mean = tf.nn.avg_pool2d(tf.pad(tf.square(x), padding), op.size, 1, "VALID", data_format)
        return x * tf.pow(op.k + op.alpha * mean, -op.beta)

    return function
