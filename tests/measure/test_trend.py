from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from deepstone.measure import doubts
from deepstone.measure.steady_state import find_trend

SERIES = 400


def autocorrelated(rng: np.random.Generator, samples: int) -> NDArray[np.float64]:
    """Neighbours correlate by 0.5, as steps do."""
    noise = rng.normal(size=samples)
    for position in range(1, samples):
        noise[position] += 0.5 * noise[position - 1]
    return 1 + 0.03 * noise


def with_outliers(rng: np.random.Generator, samples: int) -> NDArray[np.float64]:
    """A quiet machine on which one step in twenty takes up to ten times as long."""
    slow = rng.random(samples) < 0.05
    return 1 + 0.01 * rng.normal(size=samples) + slow * rng.uniform(0, 9, samples)


@pytest.mark.parametrize("samples", [10, 20, 40, 400])
@pytest.mark.parametrize(
    "make",
    [
        lambda rng, n: 1 + 0.05 * rng.normal(size=n),
        lambda rng, n: rng.lognormal(0, 0.3, n),
        autocorrelated,
        with_outliers,
    ],
    ids=["normal", "lognormal", "autocorrelated", "outliers"],
)
def test_a_stationary_series_rarely_gives_a_doubt(make, samples: int) -> None:
    found = sum(doubts.trend(make(np.random.default_rng(seed), samples)) is not None for seed in range(SERIES))
    assert found < 0.05 * SERIES


@pytest.mark.parametrize("drift", [0.05, -0.05])
@pytest.mark.parametrize("samples", [20, 200])
def test_a_drift_of_five_percent_is_found(drift: float, samples: int) -> None:
    ramp = np.linspace(0, drift, samples)
    found = [doubts.trend(1 + ramp + 0.01 * np.random.default_rng(seed).normal(size=samples)) for seed in range(SERIES)]
    assert sum(doubt is not None for doubt in found) > 0.95 * SERIES
    assert all(("slower" if drift > 0 else "faster") in doubt.detail for doubt in found if doubt is not None)


def test_a_drift_under_two_percent_is_no_doubt_however_sure() -> None:
    assert doubts.trend(np.linspace(1.0, 1.015, 1000)) is None


def test_the_drift_is_measured_over_the_whole_series() -> None:
    found = find_trend(np.linspace(1.0, 1.1, 1000))
    assert found is not None
    assert found.drift_share == pytest.approx(0.1 / 1.05, rel=0.01)
    assert found.p_value < 1e-6


@pytest.mark.parametrize("series", [[], [1.0] * 7, [0.0] * 50])
def test_too_little_to_tell(series: list[float]) -> None:
    assert find_trend(series) is None


@given(st.lists(st.floats(1e-6, 1e3), min_size=8, max_size=200))
def test_backwards_the_drift_turns_round(series: list[float]) -> None:
    forward, backward = find_trend(series), find_trend(series[::-1])
    assert forward is not None
    assert backward is not None
    assert 0 <= forward.p_value <= 1
    if len(series) <= 20 or len(series) % 20 == 0:  # otherwise the chunks are others
        assert backward.drift_share == pytest.approx(-forward.drift_share)
        assert backward.p_value == pytest.approx(forward.p_value)
