from __future__ import annotations

from dataclasses import replace

import pytest

from deepstone.absent import Absent
from deepstone.measure import doubts
from deepstone.measure.doubts import Doubt
from deepstone.measure.noise_reading import CoreReading, GpuReading, NoiseReading
from deepstone.measure.statistics import Quantity
from deepstone.records.schema import DOUBT_CODES

VIRTUAL = Absent("the clock is not shown")
NO_GPU = Absent("no GPU is measured")
GPU = GpuReading(
    sm_clock_mhz=1980,
    max_sm_clock_mhz=1980,
    throttle_reasons=(),
    power_throttled_s=3.0,
    thermal_throttled_s=0.0,
    other_pids=(),
)


def reading(
    at_s: float,
    *,
    busy_s: tuple[float, ...] = (0.0, 0.0),
    steal_s: float = 0.0,
    our_cpu_s: float = 0.0,
    involuntary: int = 0,
    clock_mhz: tuple[float, ...] | Absent = VIRTUAL,
    gpu: GpuReading | Absent = NO_GPU,
) -> NoiseReading:
    cores = tuple(CoreReading(busy_s=100 + busy, steal_s=50 + steal_s / 2, total_s=500 + at_s) for busy in busy_s)
    return NoiseReading(
        at_s=at_s,
        cores=cores,
        clock_mhz=clock_mhz,
        load_1min=0.5,
        our_cpu_s=7 + our_cpu_s,
        our_voluntary_switches=0,
        our_involuntary_switches=9 + involuntary,
        gpu=gpu,
    )


def code(doubt: Doubt | None) -> str | None:
    if doubt is not None:
        assert doubt.code in DOUBT_CODES
        assert doubt.to_json() == {"code": doubt.code, "detail": doubt.detail}
    return None if doubt is None else doubt.code


def test_a_quiet_machine_gives_no_doubt() -> None:
    start = reading(0.0, gpu=GPU, clock_mhz=(3000.0, 3000.0))
    end = reading(10.0, busy_s=(9.9, 9.9), our_cpu_s=19.7, involuntary=40, gpu=GPU, clock_mhz=(2990.0, 2980.0))
    assert doubts.noise_doubts(start, end) == []


def test_a_noisy_machine_gives_all_of_them() -> None:
    hot = replace(GPU, sm_clock_mhz=1425, throttle_reasons=("sw_power_cap",), power_throttled_s=12.5, other_pids=(31,))
    start = reading(0.0, gpu=GPU, clock_mhz=(3000.0, 3000.0))
    end = reading(
        10.0,
        busy_s=(9.0, 9.0),
        steal_s=1.0,
        our_cpu_s=10.0,
        involuntary=5000,
        clock_mhz=(2000.0, 2000.0),
        gpu=hot,
    )
    found = doubts.noise_doubts(start, end)
    assert {code(doubt) for doubt in found} == {
        "cpu_steal",
        "other_load",
        "involuntary_switches",
        "clock_drop",
        "throttling",
    }
    assert len(found) == 7  # the last but one and the second speak for CPU and GPU each


@pytest.mark.parametrize(("steal_s", "expected"), [(0.19, None), (0.21, "cpu_steal")])
def test_steal_counts_from_one_percent_of_our_cores(steal_s: float, expected: str | None) -> None:
    assert code(doubts.cpu_steal(reading(0.0), reading(10.0, steal_s=steal_s))) == expected


def test_a_few_ticks_prove_nothing() -> None:
    start, end = reading(0.0), reading(0.2, steal_s=0.03, busy_s=(0.03, 0.0), involuntary=9)
    assert doubts.noise_doubts(start, end) == []


@pytest.mark.parametrize(("our_cpu_s", "expected"), [(9.1, None), (8.9, "other_load")])
def test_other_load_counts_from_five_percent_of_the_cores(our_cpu_s: float, expected: str | None) -> None:
    end = reading(10.0, busy_s=(10.0, 0.0), our_cpu_s=our_cpu_s)
    assert code(doubts.other_load(reading(0.0), end)) == expected


def test_other_load_is_told_in_cores() -> None:
    doubt = doubts.other_load(reading(0.0), reading(10.0, busy_s=(10.0, 8.0), our_cpu_s=10.0))
    assert doubt is not None
    assert doubt.detail.startswith("other processes kept 0.80 of 2 cores busy")


def test_a_process_of_ours_that_ended_is_not_taken_for_others() -> None:
    assert doubts.other_load(reading(0.0, our_cpu_s=20.0), reading(10.0, busy_s=(9.0, 9.0), our_cpu_s=1.0)) is None


@pytest.mark.parametrize(("switches", "expected"), [(500, None), (501, "involuntary_switches")])
def test_involuntary_switches_count_from_fifty_a_second(switches: int, expected: str | None) -> None:
    assert code(doubts.involuntary_switches(reading(0.0), reading(10.0, involuntary=switches))) == expected


def test_the_clock_of_an_idle_core_does_not_matter() -> None:
    start = reading(0.0, clock_mhz=(3000.0, 3000.0))
    idle_core_slowed = reading(10.0, busy_s=(9.9, 0.1), clock_mhz=(3000.0, 800.0))
    busy_core_slowed = reading(10.0, busy_s=(9.9, 0.1), clock_mhz=(2800.0, 3000.0))
    assert doubts.cpu_clock_drop(start, idle_core_slowed) is None
    assert code(doubts.cpu_clock_drop(start, busy_core_slowed)) == "clock_drop"


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ({}, {"sm_clock_mhz": 1900}, None),
        ({}, {"sm_clock_mhz": 1870}, "clock_drop"),
        ({"sm_clock_mhz": 1425}, {"sm_clock_mhz": 1425}, "clock_drop"),
        ({"sm_clock_mhz": 1980}, {"sm_clock_mhz": 1425, "max_sm_clock_mhz": Absent("no")}, "clock_drop"),
        ({}, {"sm_clock_mhz": 345, "throttle_reasons": ("gpu_idle",)}, None),
        ({}, {"sm_clock_mhz": Absent("no")}, None),
    ],
)
def test_gpu_clock(first: dict[str, object], last: dict[str, object], expected: str | None) -> None:
    start, end = reading(0.0, gpu=replace(GPU, **first)), reading(10.0, gpu=replace(GPU, **last))
    assert code(doubts.gpu_clock_drop(start, end)) == expected


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ({}, None),
        ({"throttle_reasons": ("gpu_idle", "applications_clocks")}, None),
        ({"throttle_reasons": ("hw_thermal",)}, "hw_thermal"),
        ({"power_throttled_s": 3.05}, None),
        ({"power_throttled_s": 12.0}, "by the power limit for 90 % of the time"),
        ({"thermal_throttled_s": 1.0}, "by heat for 10 % of the time"),
        ({"throttle_reasons": Absent("no"), "power_throttled_s": Absent("no")}, None),
    ],
)
def test_throttling_is_seen_at_the_end_and_in_between(last: dict[str, object], words: str | None) -> None:
    doubt = doubts.throttling(reading(0.0, gpu=GPU), reading(10.0, gpu=replace(GPU, **last)))
    assert (doubt is None) == (words is None)
    if doubt is not None and words is not None:
        assert code(doubt) == "throttling"
        assert words in doubt.detail


def test_what_throttled_before_the_window_is_no_doubt() -> None:
    start = reading(0.0, gpu=replace(GPU, throttle_reasons=("sw_power_cap",)))
    assert doubts.throttling(start, reading(10.0, gpu=GPU)) is None


def test_another_process_on_the_gpu_is_named() -> None:
    doubt = doubts.other_gpu_load(reading(0.0, gpu=replace(GPU, other_pids=(42, 7))), reading(10.0, gpu=GPU))
    assert code(doubt) == "other_load"
    assert doubt is not None
    assert "pid 7, 42" in doubt.detail


def test_interval_too_wide() -> None:
    assert doubts.interval_too_wide(0.02, target=0.02) is None
    assert code(doubts.interval_too_wide(0.05, target=0.02)) == "interval_too_wide"


def test_too_short_to_time() -> None:
    assert doubts.too_short_to_time(50e-6, clock_cost_s=50e-9) is None
    assert code(doubts.too_short_to_time(49e-6, clock_cost_s=50e-9)) == "too_short_to_time"


def test_host_bound() -> None:
    assert doubts.host_bound(enqueue_s=0.9, block_s=1.0) is None
    assert code(doubts.host_bound(enqueue_s=0.91, block_s=1.0)) == "host_bound"


def test_few_samples() -> None:
    assert doubts.few_samples(10) is None
    assert code(doubts.few_samples(9)) == "few_samples"


def launch(median_s: float, half_width_s: float) -> Quantity:
    return Quantity(median=median_s, low=median_s - half_width_s, high=median_s + half_width_s, n=100)


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
    launches = [launch(median_s, half_width_s) for median_s in medians_s]
    assert code(doubts.diverging_launches(launches)) == expected


def test_the_worst_pair_of_launches_is_told() -> None:
    launches = [launch(median_s, 0.0001) for median_s in (0.108, 0.100, 0.103)]
    doubt = doubts.diverging_launches(launches)
    assert doubt is not None
    assert "100 ms a step and one 108 ms: 8.0 % apart" in doubt.detail


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(1.15, 1.56, "changed_by_looking"), (0.80, 0.94, "changed_by_looking"), (1.04, 1.20, None), (0.93, 0.96, None)],
)
def test_parts_that_do_not_add_up_beyond_doubt(low: float, high: float, expected: str | None) -> None:
    explained = Quantity(median=(low + high) / 2, low=low, high=high, n=8)
    assert code(doubts.changed_by_looking(explained)) == expected
