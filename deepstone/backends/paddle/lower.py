"""Layers to functions of Paddle.

Paddle's kernels round some numbers to float32 whatever they compute in: what an average pool's gradient is divided by,
the exponent of a power. In double precision such layers are written out in operations that do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import paddle
import paddle.nn.functional as F

from deepstone.backends.cpu_backend import TableLowering, add_all
from deepstone.backends.paddle.arrays import Arrays
from deepstone.backends.paddle.settings import Settings
from deepstone.backends.wire_graph import WireGraph, WireLayer

Function: TypeAlias = Callable[..., Any]


class Lowering(TableLowering):
    """As a user of Paddle would call them by hand."""

    def __init__(self, graph: WireGraph, arrays: Arrays, settings: Settings) -> None:
        super().__init__(graph, arrays, settings.dtype, settings.training, settings.dropout)
        self._settings = settings

    def _short(self) -> dict[str, Callable[..., Any]]:
        return {
            "relu": lambda layer: F.relu,
            "global_pool": lambda layer: lambda x: x.mean([2, 3], keepdim=True),
            "add": lambda layer: add_all,
            "concat": lambda layer: lambda *xs: paddle.concat(xs, axis=1),
            "flatten": lambda layer: lambda x: paddle.flatten(x, 1),
        }

    def _conv(self, layer: WireLayer) -> Function:
        (weight, bias), has = self._weights(layer), layer.has
        stride, pad, dilation, groups = has["stride"], list(has["pad"]), has["dilation"], has["groups"]
        return lambda x: F.conv2d(x, weight, bias, stride, pad, dilation, groups)

    def _dense(self, layer: WireLayer) -> Function:
        weight, bias = self._weights(layer)
        return lambda x: F.linear(x, weight, bias)

    def _batch_norm(self, layer: WireLayer) -> Function:
        (weight, bias), (mean, var) = self._weights(layer), self._statistics(layer)
        old_share, epsilon, training = 1 - layer.has["momentum"], layer.has["epsilon"], self._settings.training
        return lambda x: F.batch_norm(x, mean, var, weight, bias, training, old_share, epsilon)

    def _max_pool(self, layer: WireLayer) -> Function:
        has = layer.has
        kernel, stride, pad, ceil = has["kernel"], has["stride"], list(has["pad"]), has["ceil_mode"]
        return self._without_outside(layer, lambda x: F.max_pool2d(x, kernel, stride, pad, ceil_mode=ceil))

    def _average_pool(self, layer: WireLayer) -> Function:
        has = layer.has
        kernel, stride, pad, ceil, counts = (
            has[name] for name in ("kernel", "stride", "pad", "ceil_mode", "count_pad")
        )
        if self._settings.exact or (counts and not layer.pad_is_even()):  # Paddle counts the leading pads on both ends
            return self._means_of_sums(layer)
        return self._without_outside(
            layer, lambda x: F.avg_pool2d(x, kernel, stride, list(pad), ceil_mode=ceil, exclusive=not counts)
        )

    def _without_outside(self, layer: WireLayer, pool: Function) -> Function:
        """A pool that rounds up, without its last windows where they lie outside the image."""
        if not layer.ends_outside(self._graph.shape(layer.inputs[0])):
            return pool
        height, width = layer.output[1], layer.output[2]
        return lambda x: pool(x)[:, :, :height, :width]

    def _means_of_sums(self, layer: WireLayer) -> Function:
        has, source = layer.has, self._graph.shape(layer.inputs[0])
        rows, columns = layer.places_that_count(source)
        divisor = paddle.to_tensor(np.outer(rows, columns)[None, None], dtype=self._settings.dtype)
        pad = list(has["pad"])
        for side in (0, 1):  # as far as the last window reaches, which may be beyond the pad
            reach = (layer.output[1 + side] - 1) * has["stride"][side] + has["kernel"][side]
            pad[2 * side + 1] = max(0, reach - source[1 + side] - pad[2 * side])
        sums = self._window_sums(has["kernel"], has["stride"], pad)
        return lambda x: sums(x) / divisor

    def _window_sums(self, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int]) -> Function:
        """Sum the windows of each channel by a convolution with ones."""
        ones = paddle.ones([1, 1, *kernel], dtype=self._settings.dtype)

        def sums(x: Any) -> Any:
            batch, channels, height, width = x.shape
            summed = F.conv2d(x.reshape([batch * channels, 1, height, width]), ones, None, stride, list(pad))
            return summed.reshape([batch, channels, *summed.shape[2:]])

        return sums

    def _lrn(self, layer: WireLayer) -> Function:
        size, alpha, beta, k = (layer.has[name] for name in ("size", "alpha", "beta", "k"))
        if not layer.has["within_channel"] and not self._settings.exact:
            return lambda x: F.local_response_norm(x, size, alpha, beta, k)
        means = self._local_means(layer)
        # A number would be rounded, a tensor is not.
        power = paddle.full([], -beta, dtype=self._settings.dtype) if self._settings.exact else -beta
        return lambda x: x * paddle.pow(means(x * x) * alpha + k, power)

    def _local_means(self, layer: WireLayer) -> Function:
        """Over each window of a local response norm; one that leaves the image is divided by its whole size."""
        size = layer.has["size"]
        half = size // 2
        if layer.has["within_channel"]:
            if not self._settings.exact:
                return lambda x: F.avg_pool2d(x, size, 1, half, exclusive=False)
            square = self._window_sums((size, size), (1, 1), (half,) * 4)
            return lambda x: square(x) / (size * size)
        column = self._window_sums((size, 1), (1, 1), (half, half, 0, 0))
        return lambda x: column(x.flatten(2).unsqueeze(1)).reshape(x.shape) / size

    def _drop(self, layer: WireLayer) -> Function:
        if not self._settings.dropout:
            return lambda x: x
        rate, training = layer.has["rate"], self._settings.training
        return lambda x: F.dropout(x, rate, training=training)

    def _loss(self, layer: WireLayer) -> Function:
        weight = layer.has["weight"]
        if weight == 1:
            return F.cross_entropy
        return lambda x, labels: F.cross_entropy(x, labels) * weight
