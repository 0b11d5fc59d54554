from __future__ import annotations

import pytest
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.measure import noise
from deepstone.measure.noise import CoreReading, Doubt, GpuReading, GpuUse, NoiseReading, QuotaReading
from deepstone.results.doubt import DOUBT_CODES

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
    assert noise.noise_doubts(start, end) == []


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
    found = noise.noise_doubts(start, end)
    assert {code(doubt) for doubt in found} == {
        "cpu_steal",
        "other_load",
        "gpu_shared",
        "involuntary_switches",
        "clock_drop",
        "throttling",
    }
    assert len(found) == 7  # the last but one speaks for CPU and GPU each


@pytest.mark.parametrize(("steal_s", "expected"), [(0.19, None), (0.21, "cpu_steal")])
def test_steal_counts_from_one_percent_of_our_cores(steal_s: float, expected: str | None) -> None:
    assert code(noise.cpu_steal(reading(0.0), reading(10.0, steal_s=steal_s))) == expected


def test_a_few_ticks_prove_nothing() -> None:
    start, end = reading(0.0), reading(0.2, steal_s=0.03, busy_s=(0.03, 0.0), involuntary=9)
    assert noise.noise_doubts(start, end) == []


@pytest.mark.parametrize(
    ("our_cpu_s", "expected"), [(9.1, None), (8.9, "background_load"), (6.1, "background_load"), (5.9, "other_load")]
)
def test_load_counts_from_five_percent_of_the_cores_and_is_much_from_twenty(
    our_cpu_s: float, expected: str | None
) -> None:
    end = reading(10.0, busy_s=(10.0, 0.0), our_cpu_s=our_cpu_s)
    assert code(noise.other_load(reading(0.0), end)) == expected


def quota(periods: int, throttled_periods: int, throttled_s: float = 0.0) -> QuotaReading:
    return QuotaReading(periods=periods, throttled_periods=throttled_periods, throttled_s=throttled_s)


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        ((), (), None),
        ((quota(50, 7),), (quota(150, 8),), None),
        ((quota(50, 7),), (quota(150, 9),), "2 of 100 periods"),
        ((quota(50, 7), quota(0, 0)), (quota(150, 7), quota(100, 90, 6.5)), "90 of 100 periods, for 6.50 s in all"),
        ((quota(50, 7),), (), None),  # moved to another group meanwhile
    ],
)
def test_a_quota_that_stopped_us(
    start: tuple[QuotaReading, ...], end: tuple[QuotaReading, ...], words: str | None
) -> None:
    doubt = noise.cpu_quota(replace(reading(0.0), quotas=start), replace(reading(10.0), quotas=end))
    assert code(doubt) == (None if words is None else "cpu_quota")
    assert doubt is None or words is None or words in doubt.detail


def test_other_load_is_told_in_cores() -> None:
    doubt = noise.other_load(reading(0.0), reading(10.0, busy_s=(10.0, 8.0), our_cpu_s=10.0))
    assert doubt is not None
    assert doubt.detail.startswith("other processes kept 0.80 of 2 cores busy")


def test_a_process_of_ours_that_ended_is_not_taken_for_others() -> None:
    assert noise.other_load(reading(0.0, our_cpu_s=20.0), reading(10.0, busy_s=(9.0, 9.0), our_cpu_s=1.0)) is None


@pytest.mark.parametrize(("switches", "expected"), [(500, None), (501, "involuntary_switches")])
def test_involuntary_switches_count_from_fifty_a_second(switches: int, expected: str | None) -> None:
    assert code(noise.involuntary_switches(reading(0.0), reading(10.0, involuntary=switches))) == expected


def test_the_clock_of_an_idle_core_does_not_matter() -> None:
    start = reading(0.0, clock_mhz=(3000.0, 3000.0))
    idle_core_slowed = reading(10.0, busy_s=(9.9, 0.1), clock_mhz=(3000.0, 800.0))
    busy_core_slowed = reading(10.0, busy_s=(9.9, 0.1), clock_mhz=(2800.0, 3000.0))
    assert noise.cpu_clock_drop(start, idle_core_slowed) is None
    assert code(noise.cpu_clock_drop(start, busy_core_slowed)) == "clock_drop"


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
    assert code(noise.gpu_clock_drop(start, end)) == expected


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
    doubt = noise.throttling(reading(0.0, gpu=GPU), reading(10.0, gpu=replace(GPU, **last)))
    assert (doubt is None) == (words is None)
    if doubt is not None and words is not None:
        assert code(doubt) == "throttling"
        assert words in doubt.detail


def test_what_throttled_before_the_window_is_no_doubt() -> None:
    start = reading(0.0, gpu=replace(GPU, throttle_reasons=("sw_power_cap",)))
    assert noise.throttling(start, reading(10.0, gpu=GPU)) is None


IDLE = GpuUse(
    uuid="GPU-1", compute_pids=(), graphics_pids=(), utilization=0.0, used_bytes=4 * 2**20, mig=False, mps=False
)
BLIND = replace(IDLE, compute_pids=Absent("no"), graphics_pids=Absent("no"), utilization=Absent("no"))


@pytest.mark.parametrize(
    ("readings", "before", "after", "words"),
    [
        ((), IDLE, IDLE, None),
        ((GPU, GPU), IDLE, IDLE, None),
        ((GPU, GPU), BLIND, replace(BLIND, used_bytes=Absent("no")), None),
        ((replace(GPU, other_pids=(42, 7)), GPU), IDLE, IDLE, "pid 7, 42 have compute contexts on it"),
        ((), replace(IDLE, compute_pids=(9,)), IDLE, "pid 9 has a compute context on it"),
        ((), replace(IDLE, utilization=0.98), IDLE, "98 % busy before our worker started"),
        ((), IDLE, replace(IDLE, utilization=0.98), "98 % busy after it ended"),  # began while we measured
        ((), IDLE, replace(IDLE, utilization=0.05), None),
        ((), replace(BLIND, used_bytes=5 * 2**30), IDLE, "does not list here hold 5.00 GiB"),
        ((), replace(IDLE, graphics_pids=(3,), used_bytes=2**27), IDLE, None),  # a desktop that rests
        ((), replace(IDLE, graphics_pids=(3,), utilization=0.4), IDLE, "pid 3 draws on it"),
        ((), replace(IDLE, compute_pids=(9,), mig=True), IDLE, "divided by MIG"),
        ((), replace(IDLE, compute_pids=(9,), mps=True), IDLE, "MPS runs kernels of several processes side by side"),
        ((), replace(IDLE, mig=True, mps=True), IDLE, None),
    ],
)
def test_who_else_uses_the_gpu(
    readings: tuple[GpuReading, ...], before: GpuUse, after: GpuUse, words: str | None
) -> None:
    doubt = noise.gpu_shared(readings, before=before, after=after)
    assert code(doubt) == (None if words is None else "gpu_shared")
    assert doubt is None or words is None or words in doubt.detail
