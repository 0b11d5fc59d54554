"""Doubts that a run's own numbers raise: samples that say too little, and numbers that contradict each other."""

from __future__ import annotations

import math

import pytest

from deepstone.measure import doubts
from deepstone.measure.doubts import Doubt, RoundTrip
from deepstone.measure.statistics import Quantity, median_of
from deepstone.results.doubt import DOUBT_CODES


def code(doubt: Doubt | None) -> str | None:
    assert doubt is None or doubt.code in DOUBT_CODES
    return None if doubt is None else doubt.code


def quantity(median: float, half_width: float = 0.0) -> Quantity:
    return Quantity.of(median=median, low=median - half_width, high=median + half_width, n=10)


def trips(*pairs: tuple[float, float]) -> list[RoundTrip]:
    return [RoundTrip(claimed_s=claimed_s, waited_s=waited_s) for claimed_s, waited_s in pairs]


def test_interval_too_wide() -> None:
    assert doubts.interval_too_wide(0.02, target_share=0.02) is None
    assert code(doubts.interval_too_wide(0.05, target_share=0.02)) == "interval_too_wide"


@pytest.mark.parametrize(
    ("reached", "said"),
    [
        (0.05, "± 5.0 %, asked for 2.0 %:"),
        (0.0204, "± 2.04 %, asked for 2.00 %:"),
        (0.020003, "± 2.0003 %, asked for 2.0000 %:"),
    ],
)
def test_an_interval_that_is_too_wide_is_told_apart_from_what_was_asked_for(reached: float, said: str) -> None:
    doubt = doubts.interval_too_wide(reached, target_share=0.02)
    assert doubt is not None
    assert said in doubt.detail


def test_the_least_excess_of_an_interval_is_told() -> None:
    doubt = doubts.interval_too_wide(math.nextafter(0.02, 1), target_share=0.02)
    assert doubt is not None
    reached, _, asked = doubt.detail.removeprefix("the median is known to ± ").partition(" %, asked for ")
    assert reached != asked.partition(" %")[0]


def test_too_short_to_time() -> None:
    assert doubts.too_short_to_time(50e-6, clock_cost_s=50e-9) is None
    assert code(doubts.too_short_to_time(49e-6, clock_cost_s=50e-9)) == "too_short_to_time"


def test_host_bound() -> None:
    assert doubts.host_bound(enqueue_s=0.9, block_s=1.0) is None
    assert code(doubts.host_bound(enqueue_s=0.91, block_s=1.0)) == "host_bound"


def test_few_samples() -> None:
    assert doubts.few_samples(10) is None
    assert code(doubts.few_samples(9)) == "few_samples"


def test_one_sample_has_the_doubts_of_three() -> None:
    def found(steps_s: list[float]) -> set[str | None]:
        step = median_of([[steps_s]])
        too_wide = doubts.interval_too_wide(step.relative_half_width, target_share=0.02)
        return {code(too_wide), code(doubts.few_samples(step.n))}

    assert found([0.1, 0.2, 0.3]) == found([0.1]) == {"interval_too_wide", "few_samples"}


def test_launches_of_one_sample_each_explain_no_difference() -> None:
    launches = [median_of([[[0.100]]]), median_of([[[0.105]]])]
    assert code(doubts.diverging_launches(launches)) == "diverging_launches"


@pytest.mark.parametrize(
    ("medians_s", "half_width_s", "expected"),
    [
        ([0.100], 0.001, None),
        ([], 0.001, None),
        ([0.100, 0.104], 0.001, None),  # 4 ms apart, and two half widths of 1 ms explain 3 times 1.41 ms
        ([0.100, 0.105], 0.001, "diverging_launches"),
        ([0.100, 0.101, 0.110], 0.001, "diverging_launches"),
        ([0.100, 0.101], 0.00001, None),  # sure, but under 2 %
    ],
)
def test_diverging_launches(medians_s: list[float], half_width_s: float, expected: str | None) -> None:
    launches = [quantity(median_s, half_width_s) for median_s in medians_s]
    assert code(doubts.diverging_launches(launches)) == expected


def test_the_worst_pair_of_launches_is_told() -> None:
    launches = [quantity(median_s, 0.0001) for median_s in (0.108, 0.100, 0.103)]
    doubt = doubts.diverging_launches(launches)
    assert doubt is not None
    assert "100 ms a step and one 108 ms: 8.0 % apart" in doubt.detail


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(1.15, 1.56, "profiler_overhead"), (0.80, 0.94, "profiler_overhead"), (1.04, 1.20, None), (0.93, 0.96, None)],
)
def test_parts_that_do_not_add_up_beyond_doubt(low: float, high: float, expected: str | None) -> None:
    explained = Quantity.of(median=(low + high) / 2, low=low, high=high, n=8)
    assert code(doubts.profiler_overhead(explained)) == expected


@pytest.mark.parametrize(("share", "expected"), [(0.6, None), (1.0, None), (1.01, "above_peak"), (4.81, "above_peak")])
def test_more_than_the_measured_peak(share: float, expected: str | None) -> None:
    assert code(doubts.above_peak(share, "fp32")) == expected


def test_more_than_the_hardware_can_reach_says_both_rates() -> None:
    assert doubts.above_reach(1e12, 1e12, "fp32", "2 cores") is None
    doubt = doubts.above_reach(3e12, 4e11, "fp32", "2 cores with avx2 at 6.5 GHz")
    assert code(doubt) == "above_peak"
    assert doubt is not None
    assert "3.00 TFLOP/s in fp32, and 2 cores with avx2 at 6.5 GHz can reach 400 GFLOP/s" in doubt.detail


@pytest.mark.parametrize(
    ("step", "phases", "expected"),
    [
        (quantity(1.0), [], None),
        (quantity(1.0), [quantity(0.4), quantity(0.7)], None),
        (quantity(1.0), [quantity(0.4), quantity(0.8)], None),
        (quantity(1.0), [quantity(0.5), quantity(0.8)], "phases_disagree"),
        (quantity(1.0), [quantity(0.3), quantity(0.4)], "phases_disagree"),
        (quantity(1.0), [quantity(0.5, 0.1), quantity(0.8)], None),  # the interval reaches what is usual
        (quantity(1.0, 0.2), [quantity(0.3), quantity(0.4)], None),
        (quantity(1.0), [quantity(2.0), quantity(-1.0)], None),  # by difference one may be negative
    ],
)
def test_a_step_and_its_phases(step: Quantity, phases: list[Quantity], expected: str | None) -> None:
    assert code(doubts.phases_disagree(step, phases)) == expected


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], None),
        ([(0.49, 0.5)] * 9, None),
        ([(0.5, 0.5)] * 9, None),
        ([(0.01, 0.05)] * 9, None),  # so short that the reply itself may take that long
        ([(0.05, 0.5)] * 9, "clocks_disagree"),
        ([(0.49, 0.5)] * 8 + [(0.05, 0.5)], None),  # one late reply on a busy machine
        ([(0.49, 0.5)] * 8 + [(0.6, 0.5)], "clocks_disagree"),  # no reply comes before its block ended
        ([(5.0, 0.5)], "clocks_disagree"),
    ],
)
def test_blocks_by_both_clocks(pairs: list[tuple[float, float]], expected: str | None) -> None:
    assert code(doubts.clocks_disagree(trips(*pairs))) == expected


def test_an_untimed_step_may_be_faster_than_the_timed_one() -> None:
    assert doubts.clocks_disagree([RoundTrip(claimed_s=0.5, lead_s=0.5, waited_s=0.8)]) is None
    assert doubts.clocks_disagree([RoundTrip(claimed_s=0.1, lead_s=0.8, waited_s=1.0)]) is None
    assert code(doubts.clocks_disagree([RoundTrip(claimed_s=0.5, lead_s=0.5, waited_s=0.4)])) == "clocks_disagree"
