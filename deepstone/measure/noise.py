"""Doubts about noise on the machine: `hardware.noise` and `hardware.gpu` take readings, and two readings raise doubts.

Pure. Each function checks for one doubt and describes it with numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

from msgspec import Struct

from deepstone import units
from deepstone.absent import Absent
from deepstone.results.doubt import Doubt

MOST_STEAL_SHARE: Final = 0.01
MOST_OTHER_LOAD_SHARE: Final = 0.05
LARGE_LOAD_SHARE: Final = 0.2
MOST_QUOTA_SHARE: Final = 0.01
BUSY_GPU_SHARE: Final = 0.05
MOST_HIDDEN_BYTES: Final = 2**28
MOST_INVOLUNTARY_PER_S: Final = 50.0
LEAST_CLOCK_SHARE: Final = 0.95
MOST_THROTTLED_SHARE: Final = 0.01

# The kernel counts CPU time in ticks of 10 ms, so a few of them prove nothing.
_LEAST_EVIDENCE_S: Final = 0.05
_LEAST_EVIDENCE_SWITCHES: Final = 10
# A core that slept through most of the window does not show the clock of our processes.
_BUSY_CORE_SHARE: Final = 0.5
_HARMLESS_THROTTLE_REASONS: Final = frozenset({"gpu_idle", "applications_clocks"})


class CoreReading(Struct, frozen=True, kw_only=True):
    """Seconds that one logical core has spent since boot, as the kernel counts them (in ticks of 10 ms)."""

    busy_s: float
    """Running any process, ours or not; without stolen time."""
    steal_s: float
    """Ready to run while the hypervisor ran another machine on the core."""
    total_s: float


class QuotaReading(Struct, frozen=True, kw_only=True):
    """Counters of the CPU quota of one control group since the group was made."""

    periods: int
    """Periods in which the group ran; a period is mostly 0.1 s."""
    throttled_periods: int
    """Periods in which the group used up its quota and was stopped."""
    throttled_s: float
    """Stopped time, summed over cores."""


class GpuReading(Struct, frozen=True, kw_only=True):
    """The state of the GPU that is measured."""

    sm_clock_mhz: float | Absent
    max_sm_clock_mhz: float | Absent
    throttle_reasons: tuple[str, ...] | Absent
    """At this moment; the driver updates them about every 100 ms."""
    power_throttled_s: float | Absent
    """Seconds under the power limit since the driver was loaded."""
    thermal_throttled_s: float | Absent
    other_pids: tuple[int, ...] | Absent
    """Processes, not ours, with a compute context on this GPU."""


class GpuUse(Struct, frozen=True, kw_only=True):
    """Use of a GPU by others, at a moment when no worker of ours uses it."""

    uuid: str | Absent
    compute_pids: tuple[int, ...] | Absent
    """Processes with a compute context. A container may see none of them, or see the host's numbers."""
    graphics_pids: tuple[int, ...] | Absent
    utilization: float | Absent
    """Share of the last sample period in which some kernel ran."""
    used_bytes: int | Absent
    """Used memory, without the driver's own."""
    mig: bool | Absent
    """Whether the board is divided into instances."""
    mps: bool
    """Whether kernels of several processes may run at the same time."""


class NoiseReading(Struct, frozen=True, kw_only=True):
    """One reading. The difference of two, taken with the same arguments, describes a window."""

    at_s: float
    """Seconds of the monotonic clock."""
    cores: tuple[CoreReading, ...]
    """The cores that this process may run on."""
    clock_mhz: tuple[float, ...] | Absent
    """Readings of those cores, in the same order."""
    load_1min: float
    our_cpu_s: float
    our_voluntary_switches: int
    our_involuntary_switches: int
    gpu: GpuReading | Absent
    quotas: tuple[QuotaReading, ...] = ()
    """Quotas of our control group and of its ancestors, if they have one."""


_NOT_READ = Absent("nobody has looked")


def noise_doubts(
    start: NoiseReading, end: NoiseReading, *, before: GpuUse | Absent = _NOT_READ, after: GpuUse | Absent = _NOT_READ
) -> list[Doubt]:
    """Return all doubts from two readings around a window and two GPU readings around the life of our workers."""
    judges = (
        cpu_steal,
        other_load,
        cpu_quota,
        involuntary_switches,
        cpu_clock_drop,
        gpu_clock_drop,
        throttling,
    )
    found = [judge(start, end) for judge in judges]
    found.append(gpu_shared((start.gpu, end.gpu), before=before, after=after))
    return [doubt for doubt in found if doubt is not None]


def cpu_steal(start: NoiseReading, end: NoiseReading) -> Doubt | None:
    """The hypervisor took more than 1 % of the time of our cores."""
    total_s = _core_total_s(end) - _core_total_s(start)
    steal_s = sum(core.steal_s for core in end.cores) - sum(core.steal_s for core in start.cores)
    if steal_s < _LEAST_EVIDENCE_S or steal_s <= MOST_STEAL_SHARE * total_s:
        return None
    share = units.percent(steal_s / total_s)
    return Doubt(code="cpu_steal", detail=f"the hypervisor gave {share} of our CPU time to other machines")


def other_load(start: NoiseReading, end: NoiseReading) -> Doubt | None:
    """Others (foreign processes, the kernel's own work) used more than 5 % of the cores that we may run on.

    The share is the busy time of those cores minus that of our processes, over cores times seconds. Up to 20 % it is
    background load, as on a desktop; beyond that the machine is busy.
    """
    ours_s = end.our_cpu_s - start.our_cpu_s
    if ours_s < 0:  # one of our processes ended, and its count went with it
        return None
    busy_s = sum(core.busy_s for core in end.cores) - sum(core.busy_s for core in start.cores)
    others_s = busy_s - ours_s
    window_s = end.at_s - start.at_s
    if others_s < _LEAST_EVIDENCE_S or others_s <= MOST_OTHER_LOAD_SHARE * window_s * len(end.cores):
        return None
    cores = f"{others_s / window_s:.2f} of {len(end.cores)} cores"
    if others_s <= LARGE_LOAD_SHARE * window_s * len(end.cores):
        return Doubt(code="background_load", detail=f"other processes took {cores}, which is little")
    return Doubt(code="other_load", detail=f"other processes kept {cores} busy (1-minute load {end.load_1min:.2f})")


def cpu_quota(start: NoiseReading, end: NoiseReading) -> Doubt | None:
    """A control group stopped our processes in more than 1 % of its periods, because they used up its quota."""
    throttled = [
        (last.throttled_periods - first.throttled_periods, last.periods - first.periods, last, first)
        for first, last in zip(start.quotas, end.quotas, strict=False)
    ]
    stopped, periods, last, first = max(throttled, key=lambda found: found[0], default=(0, 0, None, None))
    if last is None or first is None or stopped <= MOST_QUOTA_SHARE * periods:
        return None
    return Doubt(
        code="cpu_quota",
        detail=f"the control group's CPU quota stopped our processes in {stopped} of {periods} periods, for "
        f"{units.seconds(last.throttled_s - first.throttled_s)} in all: use fewer threads than the quota has cores",
    )


def gpu_shared(
    readings: Sequence[GpuReading | Absent],
    *,
    before: GpuUse | Absent = _NOT_READ,
    after: GpuUse | Absent = _NOT_READ,
) -> Doubt | None:
    """Others use the GPU: it is over 5 % busy while no worker of ours runs, or they have compute contexts on it.

    If a container lists no processes, more than 256 MiB of used memory reveals them.
    """
    moments = (("before our worker started", before), ("after it ended", after))
    uses = [(when, use) for when, use in moments if not isinstance(use, Absent)]
    busy = [
        f"{units.percent(share)} busy {when}" for when, use in uses if (share := others_share(use)) > BUSY_GPU_SHARE
    ]
    contexts = [reading.other_pids for reading in readings if not isinstance(reading, Absent)]
    pids = _all_pids([*contexts, *(use.compute_pids for _, use in uses)])
    used_bytes = [use.used_bytes for _, use in uses if not isinstance(use.used_bytes, Absent)]
    found = [f"it was {' and '.join(busy)}"] if busy else []
    if pids:
        found.append(f"{_named(pids)} {'has a compute context' if len(pids) == 1 else 'have compute contexts'} on it")
    elif max(used_bytes, default=0) > MOST_HIDDEN_BYTES:
        found.append(f"processes that the driver does not list here hold {units.bytes_(max(used_bytes))} of its memory")
    if not found:
        return None
    drawing = _all_pids([use.graphics_pids for _, use in uses])
    if drawing and not pids:
        found.append(f"{_named(drawing)} {'draws' if len(drawing) == 1 else 'draw'} on it")
    if any(use.mig is True for _, use in uses):
        found.append("it is divided by MIG, whose instances share its power and clock")
    if any(use.mps for _, use in uses):
        found.append("MPS runs kernels of several processes side by side")
    return Doubt(code="gpu_shared", detail=f"other processes use the GPU: {'; '.join(found)}")


def others_share(use: GpuUse) -> float:
    """Return the share of time in which others ran kernels; 0 if it is not known."""
    return 0.0 if isinstance(use.utilization, Absent) else use.utilization


def _all_pids(lists: Iterable[tuple[int, ...] | Absent]) -> list[int]:
    return sorted({pid for pids in lists if not isinstance(pids, Absent) for pid in pids})


def _named(pids: Sequence[int]) -> str:
    return f"pid {', '.join(map(str, pids))}"


def involuntary_switches(start: NoiseReading, end: NoiseReading) -> Doubt | None:
    """Our threads were preempted more than 50 times a second: too many threads, or others need the cores."""
    window_s = end.at_s - start.at_s
    switches = end.our_involuntary_switches - start.our_involuntary_switches
    if switches < _LEAST_EVIDENCE_SWITCHES or switches <= MOST_INVOLUNTARY_PER_S * window_s:
        return None
    return Doubt(
        code="involuntary_switches",
        detail=f"our threads were taken off a core {switches / window_s:.0f} times a second",
    )


def cpu_clock_drop(start: NoiseReading, end: NoiseReading) -> Doubt | None:
    """The busy cores ran at under 95 % of the clock that they had at the start of the window (medians)."""
    if isinstance(start.clock_mhz, Absent) or isinstance(end.clock_mhz, Absent):
        return None
    busy = [
        position
        for position, (first, last) in enumerate(zip(start.cores, end.cores, strict=True))
        if last.busy_s - first.busy_s > _BUSY_CORE_SHARE * (end.at_s - start.at_s)
    ]
    if not busy:
        return None
    start_mhz = median(start.clock_mhz[position] for position in busy)
    end_mhz = median(end.clock_mhz[position] for position in busy)
    if end_mhz >= LEAST_CLOCK_SHARE * start_mhz:
        return None
    return Doubt(code="clock_drop", detail=f"the CPU clock fell from {start_mhz:.0f} to {end_mhz:.0f} MHz")


def gpu_clock_drop(start: NoiseReading, end: NoiseReading) -> Doubt | None:
    """The GPU ended the window at under 95 % of its clock at the start, or of its highest clock.

    A GPU that is idle at the second reading is not judged: it lowered its clock because we stopped.
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
    """Something other than idleness or an application clock limited the GPU's clock.

    It shows at the end of the window, or in the driver's count of time under the power or heat limit (over 1 %). A
    reason that was active at the start of the window came before it.
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


def _core_total_s(reading: NoiseReading) -> float:
    return sum(core.total_s for core in reading.cores)


def _elapsed(start_s: float | Absent, end_s: float | Absent) -> float:
    if isinstance(start_s, Absent) or isinstance(end_s, Absent):
        return 0.0
    return end_s - start_s
