"""Where warm-up ends: found where it is, not found where it is not, and never more than half of what there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng

from deepstone.measure.steady_state import settled, warmup_end

SEEDS = range(60)


def noise(seed: int, count: int, share: float = 0.02) -> np.ndarray:
    return 1 + share * default_rng(seed).standard_normal(count)


class TestKnownWarmups:
    @pytest.mark.parametrize("length", [1, 3, 10, 30])
    @pytest.mark.parametrize("factor", [1.5, 3.0, 20.0])
    def test_a_step(self, length: int, factor: float):
        """The first steps are slower by a factor, then all is steady."""
        excess: list[int] = []
        for seed in SEEDS:
            samples = noise(seed, 100)
            samples[:length] *= factor
            excess.append(warmup_end(samples.tolist()) - length)
        assert_within_a_few_steps(excess)

    def test_a_slope(self):
        """Exponential cooling: what is left at the cut is no more than the noise."""
        for seed in SEEDS:
            excess = 2 * np.exp(-np.arange(120) / 6)
            found = warmup_end((noise(seed, 120) + excess).tolist())
            assert excess[found] < 0.1
            assert found < 60

    def test_a_fast_start(self):
        """A CPU that begins above its sustained clock: the fast steps are warm-up as well."""
        excess: list[int] = []
        for seed in SEEDS:
            samples = noise(seed, 100)
            samples[:15] *= 0.7
            excess.append(warmup_end(samples.tolist()) - 15)
        assert_within_a_few_steps(excess)

    def test_compiling_takes_a_thousand_steps_worth(self):
        excess: list[int] = []
        for seed in SEEDS:
            samples = noise(seed, 50)
            samples[0] = 1000.0
            excess.append(warmup_end(samples.tolist()) - 1)
        assert_within_a_few_steps(excess)


def assert_within_a_few_steps(excess: list[int]) -> None:
    """No step of warm-up is left in. Chance may cost some steps more, but rarely many."""
    assert min(excess) >= 0
    assert np.median(excess) <= 2
    assert np.quantile(excess, 0.9) <= 10


class TestNoWarmup:
    def test_stationary_noise_loses_few_samples(self):
        lost = [warmup_end(noise(seed, 200).tolist()) for seed in range(100)]
        assert np.median(lost) <= 4
        assert np.quantile(lost, 0.9) <= 40

    def test_skewed_noise_loses_few_samples(self):
        lost = [warmup_end((1 + default_rng(seed).exponential(0.05, 200)).tolist()) for seed in range(100)]
        assert np.median(lost) <= 6

    @pytest.mark.parametrize(("count", "position"), [(50, 20), (100, 30), (100, 45), (200, 50), (200, 99)])
    def test_a_late_hiccup_is_no_warmup(self, count: int, position: int):
        mistaken = 0
        for seed in range(100):
            samples = noise(seed, count)
            samples[position] = 50.0
            mistaken += warmup_end(samples.tolist()) > position
        assert mistaken <= 5

    def test_constant_samples_have_none(self):
        assert warmup_end([0.25] * 50) == 0


class TestSettled:
    def test_a_steady_series_is(self):
        assert all(settled(noise(seed, 100).tolist()) for seed in SEEDS)

    def test_a_series_that_still_falls_is_not(self):
        falling = np.linspace(10, 1, 60) + 0.01 * noise(0, 60)
        assert not settled(falling.tolist())

    def test_too_few_samples_are_not(self):
        assert not settled([1.0] * 5)
        assert settled([1.0] * 6)


@given(st.lists(st.floats(1e-9, 1e6), max_size=60))
def test_never_more_than_half(samples: list[float]):
    found = warmup_end(samples)
    assert 0 <= found <= len(samples) // 2 + 1
    assert found < len(samples) or found == 0


@given(st.lists(st.floats(1e-3, 1e3), min_size=6, max_size=60), st.sampled_from([0.5, 2.0, 1024.0]))
def test_units_do_not_matter(samples: list[float], factor: float):
    assert warmup_end([factor * sample for sample in samples]) == warmup_end(samples)


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (1, 0), (2, 1), (5, 1)])
def test_few_samples_lose_the_first(count: int, expected: int):
    assert warmup_end([1.0] * count) == expected
