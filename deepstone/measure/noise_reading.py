"""A snapshot of what else goes on in a machine. Taken by `hardware.noise`, judged in pairs by `measure.doubts`."""

from __future__ import annotations

from dataclasses import dataclass

from deepstone.absent import Absent


@dataclass(frozen=True, kw_only=True, slots=True)
class CoreReading:
    """Seconds that one logical core has spent since boot, as the kernel counts them (in ticks of 10 ms)."""

    busy_s: float
    """Running something, ours or not; stolen time is not in it."""
    steal_s: float
    """Ready to run while the hypervisor gave the core to another machine."""
    total_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuReading:
    """The state of the GPU that is measured."""

    sm_clock_mhz: float | Absent
    max_sm_clock_mhz: float | Absent
    throttle_reasons: tuple[str, ...] | Absent
    """At this moment; the driver renews them about every 100 ms."""
    power_throttled_s: float | Absent
    """Seconds under the power limit since the driver was loaded: tells what happened between two readings."""
    thermal_throttled_s: float | Absent
    other_pids: tuple[int, ...] | Absent
    """Processes, not ours, with a compute context on this GPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseReading:
    """One snapshot; what happened in a window is the difference of two, taken with the same arguments."""

    at_s: float
    """Of the monotonic clock."""
    cores: tuple[CoreReading, ...]
    """The cores this process may run on."""
    clock_mhz: tuple[float, ...] | Absent
    """Of those cores, in their order."""
    load_1min: float
    our_cpu_s: float
    our_voluntary_switches: int
    our_involuntary_switches: int
    gpu: GpuReading | Absent
