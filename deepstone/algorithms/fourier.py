"""The Fourier transform of real tiles whose sides are powers of two, of whole images or of tiles.

One transform of h by w counts as its butterflies: rows as real transforms, 5/2 · h · w · log2 w, then the columns of
the w/2 + 1 frequencies as complex ones, 5 · (w/2 + 1) · h · log2 h.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deepstone.algorithms.problem import Problem
from deepstone.algorithms.transform_domain import Transform
from deepstone.graph.ops import Pair

Array: TypeAlias = NDArray[Any]


class Fourier(Transform):
    """Correlation is a product with the conjugate. Wrapped values of a tile are outside the part that is used."""

    @property
    def _bins(self) -> Pair:
        return self.tile[0], self.tile[1] // 2 + 1

    @property
    def points(self) -> int:
        return self._bins[0] * self._bins[1]

    @property
    def flops_per_product(self) -> int:
        return 8  # a complex product is 4 multiplications and 2 additions, adding it 2 more

    @property
    def values_per_point(self) -> int:
        return 2

    def image(self, tiles: Array) -> Array:
        return self._there(tiles)

    def filter(self, weight: Array) -> Array:
        return np.conj(self._there(weight))

    def upstream(self, tiles: Array) -> Array:
        return np.conj(self._there(tiles))

    def back(self, products: Array) -> Array:
        return self._back(products)[..., : self.step[0], : self.step[1]]

    def back_to_filter(self, products: Array) -> Array:
        return self._back(products)[..., : self.kernel[0], : self.kernel[1]]

    def _there(self, array: Array) -> Array:
        found = np.fft.rfft2(array, s=self.tile)
        return found.reshape(*found.shape[:-2], self.points)

    def _back(self, products: Array) -> Array:
        return np.fft.irfft2(products.reshape(*products.shape[:-1], *self._bins), s=self.tile)

    def transform_flops(self, *, images: int, filters: int, outputs: int, to_filter: bool) -> int:
        return (images + filters + outputs) * real_transform_flops(self.tile)


def real_transform_flops(size: Pair) -> int:
    height, width = size
    rows = 5 * height * width * _log2(width) // 2
    return rows + 5 * (width // 2 + 1) * height * _log2(height)


def of_whole_images(problem: Problem) -> Fourier:
    return Fourier(problem.kernel, (_power_of_two(problem.padded[0]), _power_of_two(problem.padded[1])))


def of_tiles(problem: Problem, *, tile: int) -> Fourier:
    """Use tiles of `tile` by `tile`, but no larger than the image needs."""
    whole = of_whole_images(problem).tile
    return Fourier(problem.kernel, (min(tile, whole[0]), min(tile, whole[1])))


def in_single_precision() -> bool:
    """Whether this NumPy transforms float32 in float32; before NumPy 2 it computed in float64."""
    return np.fft.rfft(np.zeros(2, np.float32)).dtype == np.complex64


def _power_of_two(size: int) -> int:
    """Return the next power of two, at least 2: the real transform of a single value has no half."""
    return max(2, 1 << (size - 1).bit_length())


def _log2(power: int) -> int:
    return power.bit_length() - 1
