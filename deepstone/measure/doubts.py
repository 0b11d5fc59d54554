"""Reasons to trust a record less. Each function looks for one and says, with numbers, what it found.

Pure: the readings come from `hardware.noise` and the samples from the run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from deepstone import units
from deepstone.absent import Absent
from deepstone.measure.noise_reading import NoiseReading
from deepstone.measure.statistics import Quantity
from deepstone.measure.trend import find_trend

MOST_STEAL_SHARE = 0.01
MOST_OTHER_LOAD_SHARE = 0.05
MOST_INVOLUNTARY_PER_S = 50.0
LEAST_CLOCK_SHARE = 0.95
MOST_THROTTLED_SHARE = 0.01
MOST_DRIFT_SHARE = 0.02
TREND_P_VALUE = 0.01
LEAST_CLOCK_COSTS = 1000
MOST_ENQUEUE_SHARE = 0.9
FEWEST_SAMPLES = 10
MOST_LAUNCH_SPREAD = 3.0
LEAST_LAUNCH_SPREAD_SHARE = 0.02
MOST_UNEXPLAINED_SHARE = 0.05

# The kernel counts CPU time in ticks of 10 ms, so a few of them prove nothing.
_LEAST_EVIDENCE_S = 0.05
_LEAST_EVIDENCE_SWITCHES = 10
# A core that slept through most of the window says nothing about the clock we ran at.
_BUSY_CORE_SHARE = 0.5
_HARMLESS_THROTTLE_REASONS = frozenset({"gpu_idle", "applications_clocks"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    """One reason, from the closed list of codes in `records`."""

    code: str
    detail: str

    def to_json(self) -> dict[str, str]:
        return {"code": self.code, "detail": self.detail}


def noise_doubts(start: NoiseReading, end: NoiseReading) -> list[Doubt]:
    """All that two readings around a window can tell."""
    judges = (
        cpu_steal,
        other_load,
        other_gpu_load,
        involuntary_switches,
        cpu_clock_drop,
        gpu_clock_drop,
        throttling,
    )
    return [doubt for judge in judges if (doubt := judge(start, end)) is not None]


def cpu_steal(start: NoiseReading, end: NoiseReading) -> Doubt | None:
    """The hypervisor took more than 1 % of the time of our cores."""
    total_s = _core_total_s(end) - _core_total_s(start)
    steal_s = sum(core.steal_s for core in end.cores) - sum(core.steal_s for core in start.cores)
    if steal_s < _LEAST_EVIDENCE_S or steal_s <= MOST_STEAL_SHARE * total_s:
        return None
    share = units.percent(steal_s / total_s)
    return Doubt(code="cpu_steal", detail=f"the hypervisor gave {share} of our CPU time to other machines")


def other_load(start: NoiseReading, end: NoiseReading) -> Doubt | None:
    """Others (processes that are not ours, the kernel's own work) used more than 5 % of the cores we may run on.

    All that those cores did, less what our processes did, over cores times seconds.
    """
    ours_s = end.our_cpu_s - start.our_cpu_s
    if ours_s < 0:  # one of ours ended and took its count along
        return None
    busy_s = sum(core.busy_s for core in end.cores) - sum(core.busy_s for core in start.cores)
    others_s = busy_s - ours_s
    window_s = end.at_s - start.at_s
    if others_s < _LEAST_EVIDENCE_S or others_s <= MOST_OTHER_LOAD_SHARE * window_s * len(end.cores):
        return None
    return Doubt(
        code="other_load",
        detail=f"other processes kept {others_s / window_s:.2f} of {len(end.cores)} cores busy "
        f"(1-minute load {end.load_1min:.2f})",
    )


def other_gpu_load(start: NoiseReading, end: NoiseReading) -> Doubt | None:
    """Another process had a compute context on the GPU at either end of the window."""
    gpus = [reading.gpu for reading in (start, end) if not isinstance(reading.gpu, Absent)]
    listed = [gpu.other_pids for gpu in gpus if not isinstance(gpu.other_pids, Absent)]
    others = sorted(set(itertools.chain.from_iterable(listed)))
    if not others:
        return None
    return Doubt(code="other_load", detail=f"other processes use the GPU: pid {', '.join(map(str, others))}")


def involuntary_switches(start: NoiseReading, end: NoiseReading) -> Doubt | None:
    """Our threads were taken off a core more than 50 times a second: too many threads, or others want the cores."""
    window_s = end.at_s - start.at_s
    switches = end.our_involuntary_switches - start.our_involuntary_switches
    if switches < _LEAST_EVIDENCE_SWITCHES or switches <= MOST_INVOLUNTARY_PER_S * window_s:
        return None
    return Doubt(
        code="involuntary_switches",
        detail=f"our threads were taken off a core {switches / window_s:.0f} times a second",
    )


def cpu_clock_drop(start: NoiseReading, end: NoiseReading) -> Doubt | None:
    """The cores that were busy in the window ran at under 95 % of the clock they had at its start (medians)."""
    if isinstance(start.clock_mhz, Absent) or isinstance(end.clock_mhz, Absent):
        return None
    busy = [
        position
        for position, (first, last) in enumerate(zip(start.cores, end.cores, strict=True))
        if last.busy_s - first.busy_s > _BUSY_CORE_SHARE * (end.at_s - start.at_s)
    ]
    if not busy:
        return None
    start_mhz = float(np.median([start.clock_mhz[position] for position in busy]))
    end_mhz = float(np.median([end.clock_mhz[position] for position in busy]))
    if end_mhz >= LEAST_CLOCK_SHARE * start_mhz:
        return None
    return Doubt(code="clock_drop", detail=f"the CPU clock fell from {start_mhz:.0f} to {end_mhz:.0f} MHz")


def gpu_clock_drop(start: NoiseReading, end: NoiseReading) -> Doubt | None:
    """The GPU ended the window at under 95 % of the clock it began with, or of the highest it can run at.

    A GPU that already idles at the second reading is not judged: it lowered its clock because we stopped.
    """
    first, last = start.gpu, end.gpu
    if isinstance(first, Absent) or isinstance(last, Absent) or isinstance(last.sm_clock_mhz, Absent):
        return None
    if not isinstance(last.throttle_reasons, Absent) and "gpu_idle" in last.throttle_reasons:
        return None
    references = [mhz for mhz in (first.sm_clock_mhz, last.max_sm_clock_mhz) if not isinstance(mhz, Absent)]
    if not references or last.sm_clock_mhz >= LEAST_CLOCK_SHARE * max(references):
        return None
    return Doubt(
        code="clock_drop",
        detail=f"the GPU ended at {last.sm_clock_mhz:.0f} MHz of a possible {max(references):.0f} MHz",
    )


def throttling(start: NoiseReading, end: NoiseReading) -> Doubt | None:
    """Something other than idleness or a chosen application clock held the GPU's clock down.

    Seen at the end of the window, or in the driver's count of time under the power limit or too hot (over 1 %). What
    was seen at its start came before it.
    """
    first, last = start.gpu, end.gpu
    if isinstance(first, Absent) or isinstance(last, Absent):
        return None
    reasons = () if isinstance(last.throttle_reasons, Absent) else last.throttle_reasons
    found = [reason for reason in reasons if reason not in _HARMLESS_THROTTLE_REASONS]
    details = [f"seen: {', '.join(found)}"] if found else []
    window_s = end.at_s - start.at_s
    for cause, throttled_s in (
        ("by the power limit", _elapsed(first.power_throttled_s, last.power_throttled_s)),
        ("by heat", _elapsed(first.thermal_throttled_s, last.thermal_throttled_s)),
    ):
        if throttled_s > MOST_THROTTLED_SHARE * window_s:
            details.append(f"{cause} for {units.percent(min(throttled_s / window_s, 1.0))} of the time")
    if not details:
        return None
    return Doubt(code="throttling", detail=f"the GPU's clock was held down; {'; '.join(details)}")


def interval_too_wide(relative_half_width: float, *, target: float) -> Doubt | None:
    """The budget ended before the interval of the median was as narrow as asked."""
    if relative_half_width <= target:
        return None
    return Doubt(
        code="interval_too_wide",
        detail=f"the median is known to ± {units.percent(relative_half_width)}, asked for {units.percent(target)}: "
        "give the run a larger budget or a quieter machine",
    )


def trend(step_s: ArrayLike) -> Doubt | None:
    """The steps became slower or faster in the course of the run, significantly (p < 0.01) and by more than 2 %."""
    found = find_trend(step_s)
    if found is None or found.p_value >= TREND_P_VALUE or abs(found.drift_share) <= MOST_DRIFT_SHARE:
        return None
    way = "slower" if found.drift_share > 0 else "faster"
    return Doubt(
        code="trend",
        detail=f"steps became {units.percent(abs(found.drift_share))} {way} over the run (p = {found.p_value:.1g})",
    )


def too_short_to_time(sample_s: float, *, clock_cost_s: float) -> Doubt | None:
    """One timed sample is shorter than 1000 readings of the clock, so the clock is seen in the result."""
    if sample_s >= LEAST_CLOCK_COSTS * clock_cost_s:
        return None
    return Doubt(
        code="too_short_to_time",
        detail=f"a sample takes {units.seconds(sample_s)} and reading the clock {units.seconds(clock_cost_s)}: "
        "use a larger batch",
    )


def host_bound(*, enqueue_s: float, block_s: float) -> Doubt | None:
    """Enqueueing the block took over 90 % of its time: the GPU waited for the CPU, whose speed was measured instead."""
    if block_s <= 0 or enqueue_s <= MOST_ENQUEUE_SHARE * block_s:
        return None
    return Doubt(
        code="host_bound",
        detail=f"enqueueing took {units.percent(enqueue_s / block_s)} of the time, so the GPU waited for the CPU: "
        "use a larger batch or compile=reduce-overhead",
    )


def few_samples(samples: int) -> Doubt | None:
    """An interval from fewer than 10 samples is itself a guess."""
    if samples >= FEWEST_SAMPLES:
        return None
    return Doubt(code="few_samples", detail=f"{samples} samples; give the run a larger budget")


def diverging_launches(launches: Sequence[Quantity]) -> Doubt | None:
    """Two launches of the same job differ by more than 3 times what their own intervals explain, and by over 2 %.

    What two intervals explain is the root of the sum of their squared half widths.
    """
    diverging = [
        (slow.median / fast.median - 1, fast, slow)
        for fast, slow in itertools.combinations(sorted(launches, key=lambda launch: launch.median), 2)
        if slow.median - fast.median > MOST_LAUNCH_SPREAD * math.hypot(_half_width(fast), _half_width(slow))
        and slow.median > (1 + LEAST_LAUNCH_SPREAD_SHARE) * fast.median
    ]
    if not diverging:
        return None
    spread_share, fast, slow = max(diverging, key=lambda found: found[0])
    return Doubt(
        code="diverging_launches",
        detail=f"of {len(launches)} launches one took {units.seconds(fast.median)} a step and one "
        f"{units.seconds(slow.median)}: {units.percent(spread_share)} apart, "
        "more than the intervals within the launches explain",
    )


def changed_by_looking(explained: Quantity) -> Doubt | None:
    """All parts of a step together are over 5 % longer or shorter than the untraced step, by the whole interval."""
    if explained.low <= 1 + MOST_UNEXPLAINED_SHARE and explained.high >= 1 - MOST_UNEXPLAINED_SHARE:
        return None
    return Doubt(
        code="changed_by_looking",
        detail=f"the parts together make {units.digits(explained.median)} of the untraced step "
        f"({units.digits(explained.low)} – {units.digits(explained.high)}): use a larger batch, "
        "beside which looking is cheap",
    )


def _half_width(launch: Quantity) -> float:
    return (launch.high - launch.low) / 2


def _core_total_s(reading: NoiseReading) -> float:
    return sum(core.total_s for core in reading.cores)


def _elapsed(start_s: float | Absent, end_s: float | Absent) -> float:
    if isinstance(start_s, Absent) or isinstance(end_s, Absent):
        return 0.0
    return end_s - start_s
