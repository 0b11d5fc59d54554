"""Intervals must cover what they claim to, and a comparison must not name a winner where there is none."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from depth import examples
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.random import Generator, default_rng

from deepstone.measure import statistics
from deepstone.measure.ratios import A_FASTER, B_FASTER, NO_DIFFERENCE, Ratio, verdict_of
from deepstone.measure.statistics import (
    Quantity,
    across_launches,
    difference_of_medians,
    expanded_tail,
    joint_medians,
    median_along,
    median_of,
    quantile_of,
    ratio_of_bounds,
    ratio_of_pairs,
    student_t,
)
from deepstone.results.codec import convert
from deepstone.runner.compare import FEWEST_PAIRS

STEP_S = 0.01
HERE = Path(__file__).parent

times = st.floats(1e-6, 1e3)
launches = st.lists(st.lists(st.lists(times, min_size=1, max_size=6), min_size=1, max_size=4), min_size=1, max_size=3)


@pytest.fixture
def fewer_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of comparisons in seconds; the ends of an interval then jitter a little, which favours no side."""
    monkeypatch.setattr(statistics, "REPLICATES", 500)


@given(
    arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=st.floats(width=32)),
    st.integers(-2, 1),
)
def test_the_median_is_that_of_numpy(values: np.ndarray, axis: int):
    with np.errstate(invalid="ignore"):
        assert np.array_equal(median_along(values, axis=axis), np.median(values, axis=axis), equal_nan=True)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20), st.floats(0, 1))
def test_a_quantile_is_that_of_numpy(values: list[float], share: float):
    assert quantile_of(np.sort(values), share) == np.quantile(values, share)


def launch(random: Generator, *, blocks: int, steps: int, block_share: float, step_share: float, factor: float = 1.0):
    """Step times whose true median is STEP_S x factor: steps vary, and blocks vary as a whole."""
    return [
        (factor * STEP_S * np.exp(random.normal(0, block_share) + random.normal(0, step_share, steps))).tolist()
        for _ in range(blocks)
    ]


class TestQuantity:
    def test_a_time_becomes_a_rate(self):
        rate = Quantity.of(median=0.5, low=0.25, high=1.0, n=7).inverse(32)
        assert rate == Quantity.of(median=64, low=32, high=128, n=7)

    def test_relative_half_width(self):
        assert Quantity.of(median=10, low=9.8, high=10.4, n=5).relative_half_width == pytest.approx(0.03)
        assert Quantity.of(median=-10, low=-10.4, high=-9.8, n=5).relative_half_width == pytest.approx(0.03)
        assert Quantity.of(median=0, low=-1, high=1, n=5).relative_half_width == math.inf

    def test_as_json(self):
        assert Quantity.of(median=2.0, low=1.0, high=3.0, n=4).to_json() == {
            "median": 2.0,
            "low": 1.0,
            "high": 3.0,
            "n": 4,
        }


class TestOneSample:
    """It tells nothing about its spread: no interval, rather than one of no width."""

    @pytest.mark.parametrize(
        "found",
        [
            median_of([[[0.7]]]),
            difference_of_medians([[0.7, 0.8], [0.7]], [[0.1]]),
            ratio_of_pairs([([[1.0, 1.1]], [[1.0, 1.2]])]),
        ],
    )
    def test_has_no_interval(self, found: Quantity):
        written = found.to_json()
        assert set(written["low"]) == set(written["high"]) == {"absent"}
        assert written["low"]["absent"]
        assert convert(written, Quantity) == found
        assert found.relative_half_width == math.inf

    def test_two_have_one(self):
        assert median_of([[[0.7, 0.9]]]).to_json() == {"median": pytest.approx(0.8), "low": 0.7, "high": 0.9, "n": 2}

    def test_what_an_earlier_version_wrote_of_it_is_read_as_none(self):
        assert not convert({"median": 2.0, "low": 2.0, "high": 2.0, "n": 1}, Quantity).has_interval
        assert convert({"median": 2.0, "low": 2.0, "high": 2.0, "n": 2}, Quantity).has_interval

    def test_nor_has_what_is_computed_from_it(self):
        alone, known = median_of([[[0.5]]]), Quantity.of(median=1.0, low=0.9, high=1.1, n=9)
        found = [alone.inverse(8), alone.scaled(3), ratio_of_bounds(alone, known), ratio_of_bounds(known, alone)]
        assert [each.median for each in found] == [16, 1.5, 0.5, 2]
        assert not any(each.has_interval for each in found)

    def test_nothing_is_decided_by_it(self):
        far = ratio_of_bounds(median_of([[[9.0]]]), Quantity.of(median=1.0, low=0.9, high=1.1, n=9))
        assert verdict_of(Ratio.of_times(far)) == NO_DIFFERENCE


class TestOrder:
    """low <= median <= high, whatever the samples: `records` refuses anything else."""

    @given(launches)
    @examples(50)
    def test_of_a_median(self, samples):
        found = median_of(samples, replicates=100)
        flat = [step for launch in samples for block in launch for step in block]
        assert found.median == np.median(flat)
        assert found.n == len(flat)
        assert found.has_interval == (found.n > 1)
        if found.has_interval:
            assert min(flat) <= found.low <= found.median <= found.high <= max(flat)
        rate = found.inverse(8)
        assert rate.low <= rate.median <= rate.high

    @given(launches, launches)
    @examples(25)
    def test_of_a_difference(self, larger, smaller):
        found = difference_of_medians(larger[0], smaller[0])
        assert found.low <= found.median <= found.high
        assert found.n == min(sum(map(len, larger[0])), sum(map(len, smaller[0])))

    @given(st.lists(st.tuples(launches, launches), min_size=2, max_size=4))
    @examples(25)
    def test_of_a_ratio(self, pairs):
        found = ratio_of_pairs([(a[0], b[0]) for a, b in pairs])
        assert 0 < found.low <= found.median <= found.high
        assert found.n == len(pairs)


class TestMedian:
    def test_constant_samples_leave_no_doubt(self):
        assert median_of([[[0.5] * 4] * 3]) == Quantity.of(median=0.5, low=0.5, high=0.5, n=12)

    def test_it_is_the_same_every_time(self):
        samples = [launch(default_rng(5), blocks=6, steps=8, block_share=0.02, step_share=0.05)]
        assert median_of(samples) == median_of(samples)

    @pytest.mark.parametrize(
        ("blocks", "block_share", "step_share"), [(5, 0.03, 0.05), (12, 0.03, 0.05), (20, 0.05, 0.02)]
    )
    def test_the_interval_covers_the_truth_as_often_as_it_says(self, blocks, block_share, step_share):
        """95 % intervals from 300 series whose blocks differ as a whole: neither over- nor much underconfident."""
        random = default_rng(1)
        covered = 0
        for _ in range(300):
            series = launch(random, blocks=blocks, steps=10, block_share=block_share, step_share=step_share)
            found = median_of([series], replicates=300)
            covered += found.low <= STEP_S <= found.high
        assert 0.88 <= covered / 300 <= 0.99

    def test_across_launches_the_interval_covers_the_truth_of_all_launches(self):
        random = default_rng(2)
        covered = 0
        for _ in range(200):
            factors = np.exp(random.normal(0, 0.04, 5))
            runs = [
                launch(random, blocks=4, steps=6, block_share=0.01, step_share=0.02, factor=factor)
                for factor in factors
            ]
            found = median_of(runs, replicates=300)
            covered += found.low <= STEP_S <= found.high
        assert 0.88 <= covered / 200 <= 0.99

    def test_launches_that_differ_widen_the_interval_that_one_alone_would_give(self):
        random = default_rng(3)
        runs = [launch(random, blocks=5, steps=10, block_share=0, step_share=0.01, factor=f) for f in (0.9, 1.0, 1.1)]
        alone = max(median_of([run]).relative_half_width for run in runs)
        assert median_of(runs).relative_half_width > 5 * alone

    def test_blocks_that_differ_are_not_taken_for_so_many_independent_steps(self):
        random = default_rng(4)
        series = launch(random, blocks=6, steps=200, block_share=0.05, step_share=0.005)
        pooled = [[step for block in series for step in block]]
        assert median_of([series]).relative_half_width > 3 * median_of([pooled]).relative_half_width

    def test_every_step_counts_however_large_its_block(self):
        """One block of 90 fast steps against ten of one slow step each: most steps are fast."""
        series = [[1.0] * 90, *([2.0] for _ in range(10))]
        found = median_of([series])
        assert found.median == 1.0
        assert found.n == 100

    def test_many_samples_fit_in_memory(self):
        random = default_rng(6)
        series = launch(random, blocks=40, steps=5000, block_share=0.01, step_share=0.05)
        found = median_of([series], replicates=200)
        assert found.low <= STEP_S <= found.high


class TestFewRounds:
    @pytest.mark.parametrize("rounds", [2, 3, 5])
    def test_differences_cover_the_truth(self, rounds: int):
        """One step of each program in a round; what slows a round slows both."""
        random = default_rng(rounds)
        covered = narrow = 0
        for _ in range(80):
            slow = random.normal(1, 0.1, size=rounds)
            series = [[[STEP_S * factor * s * random.normal(1, 0.02)] for s in slow] for factor in (1.5, 1.0)]
            joint = joint_medians(series, replicates=100)
            bootstrapped, found = (
                each(lambda v: v[..., 0] - v[..., 1]) for each in (joint.quantity, joint.quantity_of_few)
            )
            covered += found.low <= 0.5 * STEP_S <= found.high
            narrow += bootstrapped.low <= 0.5 * STEP_S <= bootstrapped.high
        assert covered >= 0.88 * 80
        assert narrow < covered

    def test_enough_rounds_stay_as_they_are(self):
        random = default_rng(1)
        joint = joint_medians([launch(random, blocks=8, steps=3, block_share=0.1, step_share=0.1)] * 2)
        assert joint.quantity_of_few(lambda v: v[..., 0]) == joint.quantity(lambda v: v[..., 0])


class TestDifference:
    def test_it_covers_the_truth(self):
        random = default_rng(7)
        covered = 0
        for _ in range(60):
            larger = launch(random, blocks=5, steps=10, block_share=0.01, step_share=0.03, factor=1.5)
            smaller = launch(random, blocks=5, steps=10, block_share=0.01, step_share=0.03)
            found = difference_of_medians(larger, smaller)
            covered += found.low <= 0.5 * STEP_S <= found.high
        assert covered >= 0.88 * 60

    def test_negative_is_shown_as_such(self):
        assert difference_of_medians([[1.0, 1.0]], [[2.0, 2.0]]).median == -1.0


class TestStudent:
    @pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 7, 10, 20, 50, 1000])
    @pytest.mark.parametrize("probability", [0.9, 0.95, 0.975, 0.99])
    def test_as_scipy_has_it(self, freedom: int, probability: float):
        import scipy.stats  # which takes a second, also where these tests are only collected

        exact = scipy.stats.t.ppf(probability, freedom)
        assert student_t(probability, freedom) == pytest.approx(exact, rel=0.01 if freedom <= 3 else 0.003)

    @pytest.mark.parametrize("units", [3, 5, 8, 12, 40])
    def test_the_tail_is_cut_where_the_t_interval_would_end(self, units: int):
        import scipy.stats

        reach = scipy.stats.t.ppf(0.975, units - 1) * math.sqrt(units / (units - 1))
        assert expanded_tail(units) == pytest.approx(scipy.stats.norm.cdf(-reach), rel=0.05)

    def test_one_unit_has_no_inside(self):
        assert expanded_tail(1) == 0.0
        assert expanded_tail(10_000) == pytest.approx(0.025, rel=0.01)


def pair(random: Generator, ratio: float):
    """Two launches that each differ from their setup's true speed by some 4 %."""
    kind = {"blocks": 6, "steps": 5, "block_share": 0.02, "step_share": 0.03}
    factors = np.exp(random.normal(0, 0.04, 2))
    return launch(random, factor=ratio * factors[0], **kind), launch(random, factor=factors[1], **kind)


def recorded_pairs(name: str):
    """The first steps of every block are enough: what matters is how launches and blocks differ."""
    pairs = json.loads((HERE / name).read_text())["pairs"]
    return [[[block[:8] for block in launch] for launch in pair] for pair in pairs]


def verdicts(draw: Callable[[], list], count: int) -> list[str]:
    return [verdict_of(Ratio.of_times(ratio_of_pairs(draw()))) for _ in range(count)]


@pytest.mark.usefixtures("fewer_replicates")
class TestVerdict:
    def test_identical_setups_have_no_winner(self):
        random = default_rng(8)
        found = verdicts(lambda: [pair(random, 1.0) for _ in range(FEWEST_PAIRS)], 200)
        assert len(found) - found.count(NO_DIFFERENCE) <= 200 / 20

    @pytest.mark.parametrize(("ratio", "winner"), [(1.15, B_FASTER), (1 / 1.15, A_FASTER)])
    def test_a_true_difference_is_found(self, ratio: float, winner: str):
        random = default_rng(9)
        found = verdicts(lambda: [pair(random, ratio) for _ in range(FEWEST_PAIRS)], 60)
        assert found.count(winner) >= 0.9 * 60
        assert set(found) <= {winner, NO_DIFFERENCE}

    @pytest.mark.parametrize("recording", ["recorded_pairs.json", "recorded_pairs_busy.json"])
    def test_recorded_pairs_of_identical_launches_have_no_winner(self, recording: str):
        """Real launches of one setup (bench/record_pairs.py), drawn and swapped at random into comparisons."""
        recorded = recorded_pairs(recording)
        assert len(recorded) >= 16
        random = default_rng(10)

        def draw():
            chosen = random.choice(len(recorded), FEWEST_PAIRS, replace=False)
            return [recorded[i] if random.random() < 0.5 else recorded[i][::-1] for i in chosen]

        found = verdicts(draw, 120)
        assert len(found) - found.count(NO_DIFFERENCE) <= 120 / 20

    def test_the_same_recording_would_show_a_real_difference(self):
        """A test that can only say "no difference" proves nothing: A made half as slow again must lose."""
        recorded = recorded_pairs("recorded_pairs.json")
        slower = [([[1.5 * step_s for step_s in block] for block in a], b) for a, b in recorded]
        assert verdict_of(Ratio.of_times(ratio_of_pairs(slower))) == B_FASTER


def test_few_pairs_are_careful():
    """Two pairs that agree to a hair: Student's t with one degree of freedom takes more than the whole range."""
    found = ratio_of_pairs([([[1.0]], [[1.0]]), ([[1.1]], [[1.0]])])
    assert found.low <= 1.0
    assert found.high >= 1.1


def test_quantities_of_several_launches_reach_over_all_of_them():
    launches = [Quantity.of(median=2.0, low=1.0, high=3.0, n=5), Quantity.of(median=4.0, low=3.5, high=4.5, n=6)]
    assert across_launches(launches) == Quantity.of(median=3.0, low=1.0, high=4.5, n=11)
    assert across_launches(launches[:1]) is launches[0]
    unknown = across_launches([launches[0], Quantity.without_interval(9.0)])
    assert (unknown.median, unknown.has_interval) == (5.5, False)
