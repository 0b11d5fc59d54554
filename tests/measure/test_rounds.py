"""Ratios and speeds over rounds: Student's t on logs, as scipy computes it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng

from deepstone.measure.statistics import CONFIDENCE, median_of_rounds, ratio_of_rounds, student_t

speeds = st.floats(1e-6, 1e9)
# The quantile is a series beyond 2 degrees of freedom; at 3 it is 0.12 % short.
NEAR = 1.5e-3


@pytest.mark.parametrize("freedom", [*range(1, 30), 100, 1000])
def test_the_quantile_is_that_of_scipy(freedom: int):
    import scipy.stats  # which takes a second, also where these tests are only collected

    assert student_t(0.975, freedom) == pytest.approx(scipy.stats.t.ppf(0.975, freedom), rel=NEAR)


@given(logs=st.lists(st.floats(-2, 2), min_size=2, max_size=12))
def test_the_interval_is_that_of_scipy(logs: list[float]):
    found = ratio_of_rounds([(float(np.exp(log)), 1.0) for log in logs])
    import scipy.stats

    mean, error = np.mean(logs), scipy.stats.sem(logs)
    low, high = scipy.stats.t.interval(CONFIDENCE, len(logs) - 1, loc=mean, scale=max(error, 1e-300))
    reach = NEAR * (high - low) + 1e-9
    assert np.log(found.median) == pytest.approx(np.median(logs), abs=1e-9)
    assert np.log(found.low) == pytest.approx(low, abs=reach)
    assert np.log(found.high) == pytest.approx(high, abs=reach)
    assert found.n == len(logs)


@given(pairs=st.lists(st.tuples(speeds, speeds), min_size=2, max_size=6))
def test_a_over_b_is_the_inverse_of_b_over_a(pairs: list[tuple[float, float]]):
    there, back = ratio_of_rounds(pairs), ratio_of_rounds([(b, a) for a, b in pairs])
    assert there.median * back.median == pytest.approx(1)
    assert there.low * back.high == pytest.approx(1)
    assert 0 < there.low <= there.median <= there.high < np.inf


@given(values=st.lists(speeds, min_size=2, max_size=8))
def test_a_speed_over_rounds_holds_its_median(values: list[float]):
    found = median_of_rounds(values)
    assert found.median == np.median(values)
    assert 0 < found.low <= found.median <= found.high


@pytest.mark.parametrize("rounds", [[], [(2.0, 1.0)]])
def test_one_round_gives_no_interval(rounds: list[tuple[float, float]]):
    with pytest.raises(ValueError, match="no interval across rounds"):
        ratio_of_rounds(rounds)


def test_a_slow_round_cancels():
    assert ratio_of_rounds([(20, 10), (2, 1), (200, 100)]).low == pytest.approx(2)


def test_one_disturbed_launch_widens_the_interval_and_leaves_the_middle():
    found = ratio_of_rounds([(103, 40.3), (102, 23.1), (102, 39.9)])
    assert found.median == pytest.approx(103 / 40.3, rel=1e-3)
    assert found.low < 1.5


@pytest.mark.parametrize("rounds", [2, 3, 5])
def test_it_covers_the_truth_as_often_as_it_says(rounds: int):
    random, repeats = default_rng(rounds), 2000
    logs = 0.3 + random.normal(0, 0.06, (repeats, rounds))
    covered = 0
    for row in np.exp(logs):
        found = ratio_of_rounds([(float(ratio), 1.0) for ratio in row])
        covered += found.low <= np.exp(0.3) <= found.high
    assert covered / repeats == pytest.approx(CONFIDENCE, abs=0.015)
