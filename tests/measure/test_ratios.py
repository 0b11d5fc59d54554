"""A ratio names its direction, so the same comparison has one winner whichever way it is written."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.measure.ratios import A_FASTER, B_FASTER, NO_DIFFERENCE, Ratio, is_above, is_below, verdict_of
from deepstone.measure.statistics import Quantity

CASES = [
    (1.021, 1.05, 1.08, B_FASTER),
    (1.019, 1.05, 1.08, NO_DIFFERENCE),  # beyond 1, but not beyond 2 %
    (0.92, 0.95, 0.979, A_FASTER),
    (0.92, 0.95, 0.981, NO_DIFFERENCE),
    (0.99, 1.0, 1.01, NO_DIFFERENCE),
]


def quantity(low: float, median: float, high: float) -> Quantity:
    return Quantity.of(median=median, low=low, high=high, n=8)


@pytest.mark.parametrize(("low", "median", "high", "verdict"), CASES)
def test_a_longer_time_loses(low: float, median: float, high: float, verdict: str) -> None:
    assert verdict_of(Ratio.of_times(quantity(low, median, high))) == verdict


@pytest.mark.parametrize(("low", "median", "high", "verdict"), CASES)
def test_a_higher_speed_wins(low: float, median: float, high: float, verdict: str) -> None:
    winner = {A_FASTER: B_FASTER, B_FASTER: A_FASTER}.get(verdict, verdict)
    assert verdict_of(Ratio.of_speeds(quantity(low, median, high))) == winner


def test_the_margin_moves_the_limit() -> None:
    ratio = Ratio.of_speeds(quantity(1.08, 1.1, 1.12))
    assert (verdict_of(ratio, 0.05), verdict_of(ratio, 0.1)) == (A_FASTER, NO_DIFFERENCE)


@given(st.floats(0.01, 100), st.floats(0, 1), st.floats(0, 1))
def test_one_direction_is_the_inverse_of_the_other(median: float, below: float, above: float) -> None:
    times = quantity(median * (1 - below), median, median * (1 + above))
    ratio = Ratio.of_times(times)
    assert ratio.time_ratio is times
    assert ratio.speed_ratio.median == pytest.approx(1 / median)
    assert ratio.speed_ratio.low == pytest.approx(1 / times.high)
    assert ratio.speed_ratio.high == (pytest.approx(1 / times.low) if times.low else math.inf)
    assert is_above(times) == (verdict_of(ratio) == B_FASTER)
    assert is_below(times) == (verdict_of(ratio) == A_FASTER)


def test_without_an_interval_there_is_no_winner() -> None:
    ratio = Ratio.of_times(Quantity.without_interval(9.0))
    assert ratio.speed_ratio == Quantity.without_interval(1 / 9)
    assert verdict_of(ratio) == NO_DIFFERENCE
