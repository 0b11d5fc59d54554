"""Operations that slide a window over images: convolutions and pools.

Convolutions are `lax.conv_general_dilated`, but for two cases in which its gradient is many times too slow on the CPU,
where XLA computes the gradient of the weights as a convolution with a kernel as large as the image. People who train
there write the same in another way: a 1 x 1 convolution as a matrix product (its weight gradient took a quarter to a
half of the time, a step of ResNet-50 27 % less), and a few groups as a few convolutions (AlexNet's conv2 in two groups
took a tenth of the time). On a GPU both are left to cuDNN.

Pools are slices: one for each place in the window, which XLA joins into one loop. `lax.reduce_window` says the same in
one call, but XLA turns its gradient into a scatter and, on the CPU, both into
scalar loops: max pools forward and backward took 8 to 13 times as long (NHWC), 1.3 to 4 times (NCHW).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from deepstone.backends.jax.settings import Order, Settings
from deepstone.graph.ops import AveragePool, Conv, MaxPool, Pad, Pair, Shape
from deepstone.graph.space_to_depth import Blocks, blocks_of

_FEW_GROUPS = 4


def convolution(op: Conv, x: Any, weight: Any, settings: Settings) -> Any:
    order = settings.order
    blocks = blocks_of(op, _shape(x, order)) if settings.space_to_depth else None
    if blocks is not None:
        return _over_blocks(blocks, x, weight, settings)
    if settings.on_cpu and 1 < op.groups <= _FEW_GROUPS:
        parts = jnp.split(x, op.groups, order.channel_axis)
        kernels = jnp.split(weight, op.groups, order.kernel_output_axis)
        outputs = [_plain(op, part, kernel, 1, settings) for part, kernel in zip(parts, kernels, strict=True)]
        return lax.concatenate(outputs, order.channel_axis)
    if settings.on_cpu and order.is_last and _is_pointwise(op):
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


def _over_blocks(blocks: Blocks, x: Any, weight: Any, settings: Settings) -> Any:
    """Convolve without a stride, with blocks of pixels as channels."""
    order, (top, bottom, left, right), (below, beside) = settings.order, blocks.image_pad, blocks.kernel_pad
    images = lax.pad(x, np.zeros((), x.dtype), order.sides((top, bottom, 0), (left, right, 0), (0, 0, 0)))
    kernels = lax.pad(weight, np.zeros((), weight.dtype), order.kernel_sides((0, below, 0), (0, beside, 0), (0, 0, 0)))
    return lax.conv_general_dilated(
        _to_depth(images, blocks.side, order.image_axes, order.channel_axis),
        _to_depth(kernels, blocks.side, order.kernel_image_axes, order.kernel_input_axis),
        window_strides=(1, 1),
        padding="VALID",
        dimension_numbers=order.dimension_numbers,
        precision=settings.convolution_precision,
    )


def _to_depth(array: Any, side: int, image_axes: Pair, channel_axis: int) -> Any:
    """Turn blocks of pixels into channels: those of a block follow each other, row by row, in each channel."""
    apart = list(array.shape)
    for axis in sorted(image_axes, reverse=True):
        apart[axis : axis + 1] = [array.shape[axis] // side, side]
    rows, columns = (axis + sum(other < axis for other in image_axes) for axis in image_axes)
    channels = channel_axis + sum(other < channel_axis for other in image_axes)
    shape = list(array.shape)
    shape[image_axes[0]] //= side
    shape[image_axes[1]] //= side
    shape[channel_axis] *= side * side
    places = [place for place in range(len(apart)) if place not in (rows + 1, columns + 1)]
    at = places.index(channels)
    places[at + 1 : at + 1] = [rows + 1, columns + 1]
    return array.reshape(apart).transpose(places).reshape(shape)


def _shape(x: Any, order: Order) -> Shape:
    rows, columns = order.image_axes
    return x.shape[order.channel_axis], x.shape[rows], x.shape[columns]


def _is_pointwise(op: Conv) -> bool:
    return op.kernel == (1, 1) and op.groups == 1 and not any(op.pad)


def _pointwise(op: Conv, x: Any, weight: Any, settings: Settings) -> Any:
    """Convolve with a 1 x 1 kernel, channels last, so that a pixel is a row."""
    rows, columns = op.stride
    seen = x if op.stride == (1, 1) else x[:, ::rows, ::columns]
    return jnp.dot(seen, weight[0, 0], precision=settings.convolution_precision)


@dataclass(frozen=True, kw_only=True, slots=True)
class Windows:
    """Positions of windows on an image of `image` rows and columns, `count` of them along each side."""

    order: Order
    image: Pair
    kernel: Pair
    stride: Pair
    pad: Pad
    count: Pair

    @staticmethod
    def of(op: MaxPool | AveragePool, source: Shape, output: Shape, order: Order) -> Windows:
        return Windows(
            order=order,
            image=(source[1], source[2]),
            kernel=op.kernel,
            stride=op.stride,
            pad=op.pad,
            count=(output[1], output[2]),
        )

    def places(self) -> Iterator[Pair]:
        """Return every place in the window, row by row."""
        for row in range(self.kernel[0]):
            for column in range(self.kernel[1]):
                yield row, column

    def padded(self, x: Any, fill: float) -> Any:
        """Return the image with the padding that windows reach, including that of ceil_mode."""
        rows, columns = (self._edges(side) for side in (0, 1))
        if rows == columns == (0, 0, 0):
            return x
        return lax.pad(x, np.asarray(fill, x.dtype), self.order.sides(rows, columns, (0, 0, 0)))

    def _edges(self, side: int) -> tuple[int, int, int]:
        before = self.pad[2 * side]
        reach = (self.count[side] - 1) * self.stride[side] + self.kernel[side]
        return before, max(0, reach - before - self.image[side]), 0

    def view(self, padded: Any, place: Pair) -> Any:
        """Return the values of all windows at one of their positions."""
        rows, columns = (self._covered(side, place[side]) for side in (0, 1))
        starts, limits, steps = (self.order.sides(rows[i], columns[i], None) for i in range(3))
        return padded[tuple(slice(*bounds) for bounds in zip(starts, limits, steps, strict=True))]

    def _covered(self, side: int, start: int) -> tuple[int, int, int]:
        step = self.stride[side]
        return start, start + (self.count[side] - 1) * step + 1, step

    def spread(self, values: Any, place: Pair) -> Any:
        """Return the inverse of `view`: one value per window into the image, zero elsewhere; values in the padding are
        dropped."""
        rows, columns = (self._edges_around(side, place[side]) for side in (0, 1))
        return lax.pad(values, np.zeros((), values.dtype), self.order.sides(rows, columns, (0, 0, 0)))

    def _edges_around(self, side: int, place: int) -> tuple[int, int, int]:
        before = place - self.pad[2 * side]
        reach = (self.count[side] - 1) * self.stride[side] + 1
        return before, self.image[side] - before - reach, self.stride[side] - 1


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def max_pool(x: Any, windows: Windows) -> Any:
    """Return the maximum of each window; padding never wins."""
    padded = windows.padded(x, -np.inf)
    views = [windows.view(padded, place) for place in windows.places()]
    largest = views[0]
    for view in views[1:]:
        largest = lax.max(largest, view)
    return largest


def _max_pool_forward(x: Any, windows: Windows) -> tuple[Any, Any]:
    """Return also the place of the maximum: the first of equals."""
    padded = windows.padded(x, -np.inf)
    views = [windows.view(padded, place) for place in windows.places()]
    largest, winner = views[0], jnp.zeros(views[0].shape, _smallest_integer(windows))
    for number, view in enumerate(views[1:], start=1):
        winner = jnp.where(view > largest, jnp.asarray(number, winner.dtype), winner)
        largest = lax.max(largest, view)
    return largest, winner


def _max_pool_backward(windows: Windows, winner: Any, upstream: Any) -> tuple[Any]:
    total = None
    for number, place in enumerate(windows.places()):
        share = windows.spread(jnp.where(winner == number, upstream, 0), place)
        total = share if total is None else total + share
    return (total,)


max_pool.defvjp(_max_pool_forward, _max_pool_backward)  # pyright: ignore[reportFunctionMemberAccess]


def _smallest_integer(windows: Windows) -> Any:
    return jnp.uint8 if windows.kernel[0] * windows.kernel[1] <= 256 else jnp.int32


def window_sums(x: Any, windows: Windows) -> Any:
    padded = windows.padded(x, 0.0)
    total = None
    for place in windows.places():
        view = windows.view(padded, place)
        total = view if total is None else total + view
    return total


def average_pool(x: Any, windows: Windows, *, count_pad: bool) -> Any:
    divisor = counted(windows, count_pad=count_pad)
    if divisor.min() == divisor.max():
        return window_sums(x, windows) * np.asarray(1.0 / divisor.flat[0], x.dtype)
    fitting = divisor[None, :, :, None] if windows.order.is_last else divisor[None, None]
    return window_sums(x, windows) / fitting.astype(x.dtype)


def counted(windows: Windows, *, count_pad: bool) -> Any:
    """Return how many values each window counts: those in the image, and those in the declared padding if
    `count_pad`."""
    along: list[Any] = []
    for side in (0, 1):
        before, after = windows.pad[2 * side : 2 * side + 2]
        first, last = (0, before + windows.image[side] + after) if count_pad else (before, before + windows.image[side])
        starts = np.arange(windows.count[side]) * windows.stride[side]
        ends = np.minimum(starts + windows.kernel[side], last)
        along.append(ends - np.maximum(starts, first))
    return np.outer(along[0], along[1])
