"""Convolutions: `lax.conv_general_dilated`, but for two cases in which its gradient is many times too slow on the CPU.

On the CPU, XLA computes the gradient of the weights as a convolution with a kernel as large as the image. Where there
is another way to write the same, people who train there use it: a 1 x 1 convolution is a matrix product (its weight
gradient took a quarter to a half of the time, a step of ResNet-50 27 % less), and a few groups are a few convolutions
(AlexNet's conv2 in two groups took a tenth of the time). On a GPU both are left to cuDNN.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from deepstone.backends.jax.settings import Settings
from deepstone.graph.ops import Conv

_FEW_GROUPS = 4


def convolution(op: Conv, x: Any, weight: Any, settings: Settings) -> Any:
    order = settings.order
    if settings.on_cpu and 1 < op.groups <= _FEW_GROUPS:
        parts = jnp.split(x, op.groups, order.channel_axis)
        kernels = jnp.split(weight, op.groups, order.kernel_output_axis)
        outputs = [_plain(op, part, kernel, 1, settings) for part, kernel in zip(parts, kernels, strict=True)]
        return lax.concatenate(outputs, order.channel_axis)
    if settings.on_cpu and order.channel_axis == 3 and _is_pointwise(op):
        return _pointwise(op, x, weight, settings)
    return _plain(op, x, weight, op.groups, settings)


def _plain(op: Conv, x: Any, weight: Any, groups: int, settings: Settings) -> Any:
    top, bottom, left, right = op.pad
    return lax.conv_general_dilated(
        x,
        weight,
        window_strides=op.stride,
        padding=((top, bottom), (left, right)),
        rhs_dilation=op.dilation,
        dimension_numbers=settings.order.dimension_numbers,
        feature_group_count=groups,
        precision=settings.convolution_precision,
    )


def _is_pointwise(op: Conv) -> bool:
    return op.kernel == (1, 1) and op.groups == 1 and not any(op.pad)


def _pointwise(op: Conv, x: Any, weight: Any, settings: Settings) -> Any:
    """Channels last, so that a pixel is a row."""
    rows, columns = op.stride
    seen = x if op.stride == (1, 1) else x[:, ::rows, ::columns]
    return jnp.dot(seen, weight[0, 0], precision=settings.convolution_precision)
