"""The definition itself: one matrix product per position in the kernel, in the precision of its arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deepstone.algorithms.images import cropped, padded
from deepstone.algorithms.problem import Problem

Array: TypeAlias = NDArray[Any]


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
    """What the matrix of all windows holds, that the explicit matrix product needs beside its operands."""
    windows = problem.batch * problem.output[0] * problem.output[1]
    return windows * problem.channels * problem.kernel[0] * problem.kernel[1]


def _kernels(problem: Problem, weight: Array) -> Array:
    """A matrix of filters by channels for each position in the kernel; contiguous, or NumPy would not use BLAS."""
    grouped = weight.reshape(problem.groups, problem.fan_out, problem.fan_in, -1)
    return np.ascontiguousarray(np.moveaxis(grouped, -1, 0))


def _views(problem: Problem, image: Array) -> Iterator[Array]:
    """For each position in the kernel, row by row: what every window sees there, writable through to `image`."""
    for row in range(problem.kernel[0]):
        for column in range(problem.kernel[1]):
            yield image[:, :, _side(problem, 0, row), _side(problem, 1, column)]


def _side(problem: Problem, side: int, position: int) -> slice:
    start, stride = position * problem.dilation[side], problem.stride[side]
    return slice(start, start + (problem.output[side] - 1) * stride + 1, stride)
