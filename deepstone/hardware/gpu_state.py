"""The part of a noise reading that is about the GPU."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from deepstone.absent import Absent
from deepstone.measure.noise_reading import GpuReading
from deepstone.measure.nvml import NvmlDevice


class GpuState:
    """Reads one GPU again and again."""

    def __init__(self, device: NvmlDevice) -> None:
        self._device = device
        # Asked once: it does not change, and the answer takes a millisecond.
        self._max_sm_clock_mhz = device.max_sm_clock_mhz()

    def now(self, our_pids: Collection[int], proc: Path) -> GpuReading:
        device = self._device
        listed = device.compute_pids()
        return GpuReading(
            sm_clock_mhz=device.sm_clock_mhz(),
            max_sm_clock_mhz=self._max_sm_clock_mhz,
            throttle_reasons=device.throttle_reasons(),
            power_throttled_s=device.power_throttled_s(),
            thermal_throttled_s=device.thermal_throttled_s(),
            other_pids=listed if isinstance(listed, Absent) else other_pids(listed, our_pids, proc),
        )


def other_pids(listed: Collection[int], our_pids: Collection[int], proc: Path) -> tuple[int, ...]:
    """Those of the processes on a GPU that are not ours.

    A driver may number a container's processes as the host does. So when none of ours is listed, but some that this
    container cannot see are, one of them is taken for ours.
    """
    others = [pid for pid in listed if pid not in our_pids and pid != os.getpid()]
    if len(others) == len(listed):
        unseen = next((pid for pid in others if not (proc / str(pid)).exists()), None)
        others = [pid for pid in others if pid != unseen]
    return tuple(others)
