"""Winograd's minimal filtering F(m x m, r x r): output tiles of m by m from tiles of m + r - 1, with as many products.

The matrices are those of Toom and Cook: evaluate at points, multiply, interpolate. A transform counts what its matrix
asks for: in each row one addition less than it has entries, and a multiplication per entry other than 1 and -1.
Entries that rows have in common are not shared.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deepstone.algorithms.transform_domain import Transform

Array: TypeAlias = NDArray[Any]
Rows: TypeAlias = tuple[tuple[Fraction, ...], ...]

# Small whole numbers and their inverses keep rounding low; beyond these, infinity is the last point.
_POINTS = tuple(map(Fraction, ("0", "1", "-1", "2", "-2", "1/2", "-1/2", "4", "-4", "1/4", "-1/4")))


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrices:
    """In one dimension: output = A [(G filter) · (B image)]."""

    a: Rows  # m x t
    b: Rows  # t x t
    g: Rows  # t x r


class Winograd(Transform):
    """Square kernels only. The gradient of the filter is the transposed algorithm, which is F(r x r, m x m)."""

    def __init__(self, output: int, kernel: int) -> None:
        tile = output + kernel - 1
        super().__init__((kernel, kernel), (tile, tile))
        self._matrices = matrices(output, kernel)

    @property
    def points(self) -> int:
        return self.tile[0] * self.tile[1]

    @property
    def flops_per_product(self) -> int:
        return 2

    @property
    def values_per_point(self) -> int:
        return 1

    def image(self, tiles: Array) -> Array:
        return self._there(self._matrices.b, tiles)

    def filter(self, weight: Array) -> Array:
        return self._there(self._matrices.g, weight)

    def upstream(self, tiles: Array) -> Array:
        return self._there(_transposed(self._matrices.a), tiles)

    def back(self, products: Array) -> Array:
        return self._back(self._matrices.a, products)

    def back_to_filter(self, products: Array) -> Array:
        return self._back(_transposed(self._matrices.g), products)

    def _there(self, rows: Rows, array: Array) -> Array:
        found = _both_sides(rows, array)
        return found.reshape(*found.shape[:-2], self.points)

    def _back(self, rows: Rows, products: Array) -> Array:
        return _both_sides(rows, products.reshape(*products.shape[:-1], *self.tile))

    def transform_flops(self, *, images: int, filters: int, outputs: int, to_filter: bool) -> int:
        a, b, g = self._matrices.a, self._matrices.b, self._matrices.g
        if to_filter:
            a, g = _transposed(a), _transposed(g)
        return images * two_sided_flops(b) + filters * two_sided_flops(g) + outputs * two_sided_flops(a)


@cache
def matrices(output: int, kernel: int) -> Matrices:
    """Return the matrices of F(output, kernel). Row i of B is the polynomial that vanishes at all points except i."""
    finite = _POINTS[: output + kernel - 2]
    assert len(finite) == output + kernel - 2, "no points for so large a tile"
    zero, one = Fraction(0), Fraction(1)
    a = tuple((*(point**power for point in finite), one if power == output - 1 else zero) for power in range(output))
    b: list[tuple[Fraction, ...]] = [
        (*_vanishing([other for other in finite if other != point]), zero) for point in finite
    ]
    b.append(_vanishing(finite))
    g: list[tuple[Fraction, ...]] = []
    for point in finite:
        scale = one
        for other in finite:
            scale *= point - other if other != point else one
        g.append(tuple(point**power / scale for power in range(kernel)))
    g.append((*[zero] * (kernel - 1), one))
    return Matrices(a=a, b=tuple(b), g=tuple(g))


def two_sided_flops(rows: Rows) -> int:
    """Return the operations of M X Mᵗ: the matrix is applied to the columns of X, then to the rows of the result."""
    once = sum(_row_flops(row) for row in rows)
    return once * (len(rows[0]) + len(rows))


def _row_flops(row: tuple[Fraction, ...]) -> int:
    entries = [entry for entry in row if entry]
    return max(0, len(entries) - 1) + sum(abs(entry) != 1 for entry in entries)


def _vanishing(roots: tuple[Fraction, ...] | list[Fraction]) -> tuple[Fraction, ...]:
    """The coefficients, lowest power first, of the product of (x - root)."""
    coefficients = [Fraction(1)]
    for root in roots:
        raised = [Fraction(0), *coefficients]
        scaled = [*(-root * each for each in coefficients), Fraction(0)]
        coefficients = [up + down for up, down in zip(raised, scaled, strict=True)]
    return tuple(coefficients)


def _transposed(rows: Rows) -> Rows:
    return tuple(zip(*rows, strict=True))


def _both_sides(rows: Rows, array: Array) -> Array:
    matrix = np.array([[float(entry) for entry in row] for row in rows], dtype=array.dtype)
    return matrix @ array @ matrix.T
