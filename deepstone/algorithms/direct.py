"""Direct convolution by its definition: one matrix product per kernel position, in the precision of its arrays. Also
pads and crops images, and cuts them into overlapping tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from deepstone.algorithms.problem import Problem
from deepstone.graph.ops import Pad, Pair

Array: TypeAlias = NDArray[Any]


def padded(images: Array, pad: Pad) -> Array:
    """Pad with zeros; a negative pad crops."""
    top, bottom, left, right = pad
    height, width = images.shape[2:]
    inside = images[:, :, max(0, -top) : height - max(0, -bottom), max(0, -left) : width - max(0, -right)]
    widths = ((0, 0), (0, 0), (max(0, top), max(0, bottom)), (max(0, left), max(0, right)))
    return np.pad(inside, widths)


def cropped(images: Array, pad: Pad, size: Pair) -> Array:
    """Return the part inside the padding."""
    top, _, left, _ = pad
    return images[:, :, top : top + size[0], left : left + size[1]]


def tile_counts(output: Pair, step: Pair) -> Pair:
    """Return how many tiles cover the output, if each gives `step` of it."""
    return -(-output[0] // step[0]), -(-output[1] // step[1])


def tiles_of(images: Array, tile: Pair, step: Pair, counts: Pair) -> Array:
    """(batch, channels, height, width) to (batch, channels, tiles, tile height, tile width), zeros beyond the image."""
    reach = [(count - 1) * each + size for count, each, size in zip(counts, step, tile, strict=True)]
    short = [max(0, wanted - size) for wanted, size in zip(reach, images.shape[2:], strict=True)]
    wide = np.pad(images, ((0, 0), (0, 0), (0, short[0]), (0, short[1])))
    windows = sliding_window_view(wide, tile, axis=(2, 3))[:, :, :: step[0], :: step[1]]
    windows = windows[:, :, : counts[0], : counts[1]]
    return windows.reshape(*images.shape[:2], counts[0] * counts[1], *tile)


def joined(tiles: Array, counts: Pair, output: Pair) -> Array:
    """Join tiles that do not overlap, and cut them to the output's size."""
    batch, channels, _, height, width = tiles.shape
    grid = tiles.reshape(batch, channels, *counts, height, width).transpose(0, 1, 2, 4, 3, 5)
    whole = grid.reshape(batch, channels, counts[0] * height, counts[1] * width)
    return whole[:, :, : output[0], : output[1]]


def forward(problem: Problem, images: Array, weight: Array) -> Array:
    groups, kernels = problem.groups, _kernels(problem, weight)
    image = padded(images, problem.pad)
    value = np.zeros((problem.batch, groups, problem.fan_out, problem.output[0] * problem.output[1]), images.dtype)
    for kernel, view in zip(kernels, _views(problem, image), strict=True):
        value += kernel @ view.reshape(problem.batch, groups, problem.fan_in, -1)
    return value.reshape(problem.batch, problem.filters, *problem.output)


def data_gradient(problem: Problem, weight: Array, upstream: Array) -> Array:
    rows = upstream.reshape(problem.batch, problem.groups, problem.fan_out, -1)
    gradient = np.zeros((problem.batch, problem.channels, *problem.padded), upstream.dtype)
    for kernel, view in zip(_kernels(problem, weight), _views(problem, gradient), strict=True):
        view += (np.swapaxes(kernel, -1, -2) @ rows).reshape(view.shape)
    return cropped(gradient, problem.pad, problem.image)


def weight_gradient(problem: Problem, images: Array, upstream: Array) -> Array:
    rows = upstream.reshape(problem.batch, problem.groups, problem.fan_out, -1)
    image = padded(images, problem.pad)
    found = [
        (rows @ np.swapaxes(view.reshape(problem.batch, problem.groups, problem.fan_in, -1), -1, -2)).sum(axis=0)
        for view in _views(problem, image)
    ]
    return np.moveaxis(np.array(found), 0, -1).reshape(problem.filters, problem.fan_in, *problem.kernel)


def im2col_values(problem: Problem) -> int:
    """Return the size of the matrix of all windows, the workspace of an explicit matrix product."""
    windows = problem.batch * problem.output[0] * problem.output[1]
    return windows * problem.channels * problem.kernel[0] * problem.kernel[1]


def _kernels(problem: Problem, weight: Array) -> Array:
    """Return a matrix of filters by channels for each kernel position; contiguous, so that NumPy uses BLAS."""
    grouped = weight.reshape(problem.groups, problem.fan_out, problem.fan_in, -1)
    return np.ascontiguousarray(np.moveaxis(grouped, -1, 0))


def _views(problem: Problem, image: Array) -> Iterator[Array]:
    """Yield, for each kernel position, row by row, the values of all windows as a writable view of `image`."""
    for row in range(problem.kernel[0]):
        for column in range(problem.kernel[1]):
            yield image[:, :, _side(problem, 0, row), _side(problem, 1, column)]


def _side(problem: Problem, side: int, position: int) -> slice:
    start, stride = position * problem.dilation[side], problem.stride[side]
    return slice(start, start + (problem.output[side] - 1) * stride + 1, stride)
