"""Convolution by a transform: tiles and filters are transformed, multiplied point by point, and transformed back.

    forward   output = back( Σ channels  image(tile) · filter(w) )
    weight    filter = back_to_filter( Σ batch, tiles  image(tile) · upstream(tile) )
    data      a forward convolution of the upstream gradient, with flipped filters

FFT and Winograd differ only in the transform.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deepstone.algorithms.direct import joined, padded, tile_counts, tiles_of
from deepstone.algorithms.problem import Operations, Pass, Problem
from deepstone.graph.ops import Pair

Array: TypeAlias = NDArray[Any]

_MOST_VALUES_AT_ONCE = 16 * 2**20  # of transformed filters; more are processed in turns


class Transform(ABC):
    """A transform for one size of kernel. Arrays have a tile's two sides last; once transformed, its points."""

    def __init__(self, kernel: Pair, tile: Pair) -> None:
        self.kernel = kernel
        self.tile = tile

    @property
    def step(self) -> Pair:
        """Return the part of the output that one tile gives."""
        return self.tile[0] - self.kernel[0] + 1, self.tile[1] - self.kernel[1] + 1

    @property
    @abstractmethod
    def points(self) -> int:
        """Return how many products a tile needs for each pair of channel and filter."""

    @property
    @abstractmethod
    def flops_per_product(self) -> int:
        """Return the real operations of one multiplication and the addition of its result."""

    @property
    @abstractmethod
    def values_per_point(self) -> int:
        """Return how many real numbers one transformed point has."""

    @abstractmethod
    def image(self, tiles: Array) -> Array: ...

    @abstractmethod
    def filter(self, weight: Array) -> Array: ...

    @abstractmethod
    def upstream(self, tiles: Array) -> Array: ...

    @abstractmethod
    def back(self, products: Array) -> Array: ...

    @abstractmethod
    def back_to_filter(self, products: Array) -> Array: ...

    @abstractmethod
    def transform_flops(self, *, images: int, filters: int, outputs: int, to_filter: bool) -> int:
        """Return the operations for these numbers of tiles and filters; `to_filter`: from outputs back to filters."""


def forward(transform: Transform, problem: Problem, images: Array, weight: Array) -> Array:
    counts = tile_counts(problem.output, transform.step)
    tiles = tiles_of(padded(images, problem.pad), transform.tile, transform.step, counts)
    left = _by_point(problem, transform.image(tiles), problem.fan_in)  # groups, points, batch · tiles, channels
    filters = weight.reshape(problem.groups, problem.fan_out, problem.fan_in, *problem.kernel)
    pieces: list[Array] = []
    at_once = max(1, _MOST_VALUES_AT_ONCE // (problem.channels * transform.points))
    for first in range(0, problem.fan_out, at_once):
        some = transform.filter(filters[:, first : first + at_once])  # groups, filters, channels, points
        products = left @ some.transpose(0, 3, 2, 1)  # groups, points, batch · tiles, filters
        piece = products.reshape(problem.groups, transform.points, problem.batch, -1, products.shape[-1])
        pieces.append(transform.back(piece.transpose(2, 0, 4, 3, 1)))  # batch, groups, filters, tiles, sides
    found = np.concatenate(pieces, axis=2)
    shape = (problem.batch, problem.filters, found.shape[3], *transform.step)
    return joined(found.reshape(shape), counts, problem.output)


def data_gradient(transform: Transform, problem: Problem, weight: Array, upstream: Array) -> Array:
    grouped = weight.reshape(problem.groups, problem.fan_out, problem.fan_in, *problem.kernel)
    turned = grouped[..., ::-1, ::-1].swapaxes(1, 2)
    filters = turned.reshape(problem.channels, problem.fan_out, *problem.kernel)
    return forward(transform, problem.data_gradient(), upstream, filters)


def weight_gradient(transform: Transform, problem: Problem, images: Array, upstream: Array) -> Array:
    counts = tile_counts(problem.output, transform.step)
    tiles = tiles_of(padded(images, problem.pad), transform.tile, transform.step, counts)
    above = tiles_of(upstream, transform.step, transform.step, counts)
    right = _by_point(problem, transform.image(tiles), problem.fan_in)
    left = _by_point(problem, transform.upstream(above), problem.fan_out).swapaxes(-1, -2)
    pieces: list[Array] = []
    at_once = max(1, _MOST_VALUES_AT_ONCE // (problem.channels * transform.points))
    for first in range(0, problem.fan_out, at_once):
        products = left[:, :, first : first + at_once] @ right  # groups, points, filters, channels
        pieces.append(transform.back_to_filter(products.transpose(0, 2, 3, 1)))
    return np.concatenate(pieces, axis=1).reshape(problem.filters, problem.fan_in, *problem.kernel)


def _by_point(problem: Problem, transformed: Array, per_group: int) -> Array:
    """(batch, channels, tiles, points) to (groups, points, batch · tiles, channels of a group): a product per point."""
    batch, _, tiles, points = transformed.shape
    grouped = transformed.reshape(batch, problem.groups, per_group, tiles, points)
    return np.ascontiguousarray(grouped.transpose(1, 4, 0, 3, 2)).reshape(
        problem.groups, points, batch * tiles, per_group
    )


def operations(transform: Transform, problem: Problem, direction: Pass) -> Operations:
    if direction == "data":
        problem = problem.data_gradient()
    tiles = _tiles(transform, problem)
    pairs = problem.filters * problem.fan_in
    return Operations(
        products=transform.flops_per_product * transform.points * tiles * pairs,
        transforms=transform.transform_flops(
            images=tiles * problem.channels,
            filters=pairs,
            outputs=tiles * problem.filters,
            to_filter=direction == "weight",
        ),
    )


def workspace_values(transform: Transform, problem: Problem, direction: Pass) -> int:
    """Return the real numbers in the transformed images, filters and outputs, which all exist at once."""
    if direction == "data":
        problem = problem.data_gradient()
    tiles = _tiles(transform, problem)
    arrays = tiles * (problem.channels + problem.filters) + problem.filters * problem.fan_in
    return transform.values_per_point * transform.points * arrays


def _tiles(transform: Transform, problem: Problem) -> int:
    """Return the tiles of the whole batch, for one channel."""
    height, width = tile_counts(problem.output, transform.step)
    return problem.batch * height * width
