"""Normalization: over a batch, and over neighbouring channels or pixels.

Their gradients are written out as in docs/graph.md. Derived from the forward pass they read and save more than they
need: on the CPU a step of ResNet-50 took 5 to 10 % longer, and the norm over channels five times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from deepstone.backends.jax.settings import Order, Settings
from deepstone.backends.jax.windows import Windows, window_sums
from deepstone.graph.ops import BatchNorm, Lrn


def batch_norm_training(
    op: BatchNorm, x: Any, parameters: Mapping[str, Any], buffers: Mapping[str, Any], settings: Settings
) -> tuple[Any, dict[str, Any]]:
    """Return the output, and the new running mean and variance. Statistics are computed in the wide type."""
    order, wide = settings.order, settings.wide
    statistics = _in_two_passes if settings.on_cpu else _in_one_pass
    output, mean, variance = _normalized_batch(
        x.astype(wide),
        parameters["weight"].astype(wide),
        parameters["bias"].astype(wide),
        op.epsilon,
        order,
        statistics,
    )
    count = x.size // x.shape[order.channel_axis]
    unbiased = variance * (count / (count - 1))
    share = op.momentum
    after = {
        name: ((1 - share) * buffers[name].astype(wide) + share * new).astype(buffers[name].dtype)
        for name, new in (("running_mean", mean), ("running_var", unbiased))
    }
    return output.astype(x.dtype), after


Statistics: TypeAlias = Callable[[Any, Order], tuple[Any, Any]]  # the mean and the (biased) variance


def _in_two_passes(x: Any, order: Order) -> tuple[Any, Any]:
    mean = x.mean(order.all_but_channels)
    return mean, jnp.square(x - order.along_channels(mean)).mean(order.all_but_channels)


def _in_one_pass(x: Any, order: Order) -> tuple[Any, Any]:
    """Compute both from sums that XLA joins into one kernel, which reads the batch once: on a GPU, batch norm takes as
    long as memory does. The sums are of distances from the first pixel, so that a mean far from 0 cancels no digits."""
    rows, columns = order.image_axes
    first = x[0]
    for axis in sorted((rows - 1, columns - 1), reverse=True):
        first = lax.index_in_dim(first, 0, axis, keepdims=False)
    moved = x - order.along_channels(first)
    mean, square = moved.mean(order.all_but_channels), jnp.square(moved).mean(order.all_but_channels)
    return mean + first, jnp.maximum(square - jnp.square(mean), 0)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def _normalized_batch(
    x: Any, weight: Any, bias: Any, epsilon: float, order: Order, statistics: Statistics
) -> tuple[Any, Any, Any]:
    """Return the output, the mean and the (biased) variance; only the output has a gradient."""
    mean, variance = statistics(x, order)
    return _scaled(x, mean, weight * lax.rsqrt(variance + epsilon), bias, order), mean, variance


def _normalized_batch_forward(
    x: Any, weight: Any, bias: Any, epsilon: float, order: Order, statistics: Statistics
) -> tuple[Any, Any]:
    output, mean, variance = _normalized_batch(x, weight, bias, epsilon, order, statistics)
    return (output, mean, variance), (x, weight, mean, lax.rsqrt(variance + epsilon))


def _normalized_batch_backward(
    _epsilon: float, order: Order, _statistics: Statistics, saved: Any, upstream: Any
) -> tuple[Any, Any, Any]:
    x, weight, mean, inverse_deviation = saved
    g = upstream[0]
    centred = x - order.along_channels(mean)
    count = x.size // weight.size
    of_bias = g.sum(order.all_but_channels)
    of_weight = (g * centred).sum(order.all_but_channels) * inverse_deviation
    pulled = (
        g
        - order.along_channels(of_bias / count)
        - centred * order.along_channels(of_weight * inverse_deviation / count)
    )
    return pulled * order.along_channels(weight * inverse_deviation), of_weight, of_bias


_normalized_batch.defvjp(  # pyright: ignore[reportFunctionMemberAccess]
    _normalized_batch_forward, _normalized_batch_backward
)


def _scaled(x: Any, mean: Any, scale: Any, bias: Any, order: Order) -> Any:
    return (x - order.along_channels(mean)) * order.along_channels(scale) + order.along_channels(bias)


def batch_norm_evaluation(
    op: BatchNorm, x: Any, parameters: Mapping[str, Any], buffers: Mapping[str, Any], order: Order, wide: Any
) -> Any:
    mean, variance = buffers["running_mean"].astype(wide), buffers["running_var"].astype(wide)
    scale = parameters["weight"].astype(wide) * lax.rsqrt(variance + op.epsilon)
    return _scaled(x.astype(wide), mean, scale, parameters["bias"].astype(wide), order).astype(x.dtype)


def local_response_norm(op: Lrn, x: Any, order: Order, wide: Any) -> Any:
    return _neighbour_norm(x.astype(wide), op, order).astype(x.dtype)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _neighbour_norm(x: Any, op: Lrn, order: Order) -> Any:
    return _neighbour_norm_forward(x, op, order)[0]


def _neighbour_norm_forward(x: Any, op: Lrn, order: Order) -> tuple[Any, Any]:
    scale = _sums(op, jnp.square(x), order) * (op.alpha / op.window) + op.k
    return x * _inverse_power(scale, op.beta), (x, scale)


def _neighbour_norm_backward(op: Lrn, order: Order, saved: Any, g: Any) -> tuple[Any]:
    x, scale = saved
    factor = _inverse_power(scale, op.beta)
    around = _sums(op, g * x * factor / scale, order)
    return (g * factor - (2 * op.alpha * op.beta / op.window) * x * around,)


_neighbour_norm.defvjp(  # pyright: ignore[reportFunctionMemberAccess]
    _neighbour_norm_forward, _neighbour_norm_backward
)


def _inverse_power(scale: Any, beta: float) -> Any:
    """Return scale to the power of -beta; for the usual value, without logarithms."""
    if beta == 0.75:
        root = lax.rsqrt(scale)
        return root * jnp.sqrt(root)
    return scale**-beta


def _sums(op: Lrn, values: Any, order: Order) -> Any:
    return _pixel_sums(op, values, order) if op.within_channel else _channel_sums(op, values, order)


def _channel_sums(op: Lrn, squares: Any, order: Order) -> Any:
    """Return sums over `size` neighbouring channels, as slices of the padded image."""
    axis, reach = order.channel_axis, op.size // 2
    edges = [(0, 0, 0)] * 4
    edges[axis] = (reach, reach, 0)
    padded = lax.pad(squares, np.zeros((), squares.dtype), edges)
    channels = squares.shape[axis]
    total = lax.slice_in_dim(padded, 0, channels, axis=axis)
    for start in range(1, op.size):
        total = total + lax.slice_in_dim(padded, start, start + channels, axis=axis)
    return total


def _pixel_sums(op: Lrn, squares: Any, order: Order) -> Any:
    rows, columns = (squares.shape[axis] for axis in order.image_axes)
    reach = op.size // 2
    windows = Windows(
        order=order,
        image=(rows, columns),
        kernel=(op.size, op.size),
        stride=(1, 1),
        pad=(reach, reach, reach, reach),
        count=(rows, columns),
    )
    return window_sums(squares, windows)
