"""Operation counts by formula against what is counted while computing, and against published ones."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from depth import examples
from hypothesis import given
from problems import problems

from deepstone.algorithms.catalog import ALGORITHMS
from deepstone.algorithms.direct import im2col_values
from deepstone.algorithms.fourier import Fourier, real_transform_flops
from deepstone.algorithms.problem import PASSES, Problem
from deepstone.algorithms.winograd import Rows, matrices, two_sided_flops
from deepstone.graph.builder import Builder
from deepstone.graph.cost import layer_cost

CONV3 = Problem(batch=4, channels=256, image=(13, 13), filters=384, kernel=(3, 3), pad=(1, 1, 1, 1))


class Tally:
    """A number that counts what is done with it. Entries of a matrix that are 1 or -1 cost no multiplication."""

    flops = 0

    def __add__(self, other: Tally) -> Tally:
        Tally.flops += 1
        return self

    def times(self, entry: Fraction) -> Tally:
        Tally.flops += abs(entry) != 1
        return self


def counted(rows: Rows, columns: list[list[Tally]]) -> list[list[Tally]]:
    """The matrix times a matrix of tallies; zeros are skipped."""
    found: list[list[Tally]] = []
    for row in rows:
        line: list[Tally] = []
        for column in zip(*columns, strict=True):
            terms = [each.times(entry) for entry, each in zip(row, column, strict=True) if entry]
            line.append(sum(terms[1:], start=terms[0]))
        found.append(line)
    return found


def turned(square: list[list[Tally]]) -> list[list[Tally]]:
    return [list(line) for line in zip(*square, strict=True)]


@pytest.mark.parametrize(("output", "kernel"), [(2, 3), (4, 3), (6, 3), (4, 5)])
@pytest.mark.parametrize("which", ["a", "b", "g"])
def test_transforms_of_winograd_as_counted(output: int, kernel: int, which: str) -> None:
    rows: Rows = getattr(matrices(output, kernel), which)
    side = len(rows[0])
    Tally.flops = 0
    counted(rows, turned(counted(rows, [[Tally()] * side for _ in range(side)])))
    assert two_sided_flops(rows) == Tally.flops


def test_transforms_of_the_smallest_winograd_as_published() -> None:
    """Lavin and Gray 2015, section 4.1: 32 additions for the data, 24 for the inverse."""
    smallest = matrices(2, 3)
    assert two_sided_flops(smallest.b) == 32
    assert two_sided_flops(smallest.a) == 24


@pytest.mark.parametrize(("name", "saving"), [("winograd-2x2", 36 / 16), ("winograd-4x4", 144 / 36)])
def test_winograd_saves_products_as_published(name: str, saving: float) -> None:
    """On an image that its tiles cover exactly: 2.25 and 4 times fewer multiplications."""
    problem = Problem(batch=3, channels=5, image=(14, 14), filters=7, kernel=(3, 3))
    done = ALGORITHMS[name].operations(problem, "forward")
    assert ALGORITHMS["direct"].operations(problem, "forward").flops == saving * done.products


def fft_butterflies(length: int) -> int:
    """As the recursion of Cooley and Tukey does them."""
    return 0 if length == 1 else 2 * fft_butterflies(length // 2) + length // 2


@pytest.mark.parametrize("size", [(2, 2), (4, 8), (16, 4), (32, 32), (256, 256)])
def test_fourier_transforms_as_counted(size: tuple[int, int]) -> None:
    """A butterfly is a complex product and two complex additions: 10. Two real rows go through as one complex row."""
    height, width = size
    rows = height * fft_butterflies(width) * 10 // 2
    columns = (width // 2 + 1) * fft_butterflies(height) * 10
    assert real_transform_flops(size) == rows + columns


@given(problem=problems())
@examples(40)
def test_multiply_adds_as_counted_by_the_definition(problem: Problem) -> None:
    height, width = problem.output
    counted_one_by_one = sum(
        1
        for _ in itertools.product(
            range(problem.batch),
            range(problem.filters),
            range(height),
            range(width),
            range(problem.channels // problem.groups),
            range(problem.kernel[0]),
            range(problem.kernel[1]),
        )
    )
    for direction in PASSES:
        assert ALGORITHMS["direct"].operations(problem, direction).flops == 2 * counted_one_by_one


def test_the_direct_count_is_that_of_the_graph() -> None:
    b = Builder("one")
    x = b.conv("conv", b.input("data", (6, 9, 9)), channels=4, kernel=3, stride=2, pad=1, groups=2)
    b.softmax_cross_entropy("loss", b.flatten("flatten", b.global_pool("pool", x)))
    graph = b.build()
    problem = Problem.of_layer(graph, graph.layer("conv"), 5)
    assert 2 * problem.multiply_adds == 5 * layer_cost(graph, graph.layer("conv")).forward_flops


def test_tiles_and_products_of_the_third_layer_of_alexnet() -> None:
    """By hand: 13x13 outputs are 7x7 tiles of 2x2 or 4x4 tiles of 4x4; 15x15 with padding is one FFT of 16x16."""
    pairs = 256 * 384
    products = {
        "winograd-2x2": 2 * 16 * 49 * 4 * pairs,
        "winograd-4x4": 2 * 36 * 16 * 4 * pairs,
        "fft": 8 * 16 * 9 * 4 * pairs,
        "fft-tiled": 8 * 16 * 9 * 4 * pairs,
        "direct": 2 * 9 * 169 * 4 * pairs,
    }
    for name, count in products.items():
        for direction in PASSES:
            assert ALGORITHMS[name].operations(CONV3, direction).products == count, name


def test_workspaces_of_the_third_layer_of_alexnet() -> None:
    images, filters, outputs = 4 * 256, 256 * 384, 4 * 384
    assert ALGORITHMS["direct"].workspace_values(CONV3, "forward") == 0
    assert im2col_values(CONV3) == images * 9 * 169
    assert ALGORITHMS["fft"].workspace_values(CONV3, "weight") == 2 * 16 * 9 * (images + filters + outputs)
    winograd = 36 * (16 * images + filters + 16 * outputs)
    for direction in PASSES:
        assert ALGORITHMS["winograd-4x4"].workspace_values(CONV3, direction) == winograd


def test_transforms_are_counted_for_every_tile_and_filter() -> None:
    tile = real_transform_flops((16, 16))
    done = ALGORITHMS["fft"].operations(CONV3, "forward")
    assert done.transforms == tile * (4 * 256 + 256 * 384 + 4 * 384)
    assert done.flops == done.products + done.transforms
    assert Fourier((3, 3), (16, 16)).step == (14, 14)


def test_the_gradient_of_a_filter_transforms_outputs_and_gives_filters() -> None:
    """F(3x3, 2x2) has the matrices of F(2x2, 3x3), two of them transposed."""
    small = Problem(batch=1, channels=1, image=(4, 4), filters=1, kernel=(3, 3))
    forward = ALGORITHMS["winograd-2x2"].operations(small, "forward")
    weight = ALGORITHMS["winograd-2x2"].operations(small, "weight")
    assert forward.products == weight.products == 32
    # B: 32. G 4x3, two rows of 2 additions and 3 halves: 10 a time, 7 times. A 2x4: 4 a time, 6 times.
    assert forward.transforms == 32 + 70 + 24
    # A transposed 4x2: 2 additions a time, 6 times. G transposed 3x4: 5 additions and 6 halves, 7 times.
    assert weight.transforms == 32 + 12 + 77
