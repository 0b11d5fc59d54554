"""Energy over a window, from readings of the device's meters at both ends.

    read_meters ──▶ steps, steps, steps … ──▶ read_meters        joules = difference; never estimated from TDP
    │◀──────── at least 10 update periods ────────▶│

The window includes the energy between blocks of steps: keep the gaps short.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.measure.energy.base import Meter
from deepstone.measure.energy.nvml import open_nvml_meter
from deepstone.measure.energy.rapl import POWERCAP, open_rapl_meters
from deepstone.results.record import Energy
from deepstone.results.record import Meter as MeterShare

# A reading may be one update period old, so a window of ten periods limits the error to a tenth.
SHORTEST_WINDOW_PERIODS = 10


class MeterReading(Struct, frozen=True, kw_only=True):
    """The reading of one meter."""

    name: str
    covers: str
    update_period_s: float
    energy_j: float | Absent


class EnergyReading(Struct, frozen=True, kw_only=True):
    """The readings of all meters of a device at one moment of the monotonic clock."""

    at_s: float
    meters: tuple[MeterReading, ...]


def find_meters(
    device: Literal["cpu", "gpu"], gpu_index: int = 0, *, gpu_uuid: str | None = None, powercap: Path = POWERCAP
) -> Sequence[Meter] | Absent:
    """Open the meters that together cover the device; close each. Absent, with the reason, if there is none.

    NVML numbers by PCI bus and CUDA may not, so give the UUID if it is known.
    """
    if device == "cpu":
        return open_rapl_meters(powercap)
    meter = open_nvml_meter(gpu_index=gpu_index, gpu_uuid=gpu_uuid)
    return meter if isinstance(meter, Absent) else [meter]


def find_board_meters(uuids: Iterable[str]) -> Sequence[Meter] | Absent:
    """Open the meters of several GPUs, or none: the energy of only some boards would look like a saving."""
    meters: list[Meter] = []
    for uuid in uuids:
        found = find_meters("gpu", gpu_uuid=uuid)
        if isinstance(found, Absent):
            for meter in meters:
                meter.close()
            return found
        meters += found
    return meters


def read_meters(meters: Sequence[Meter]) -> EnergyReading:
    """Read every meter. This takes milliseconds: call it between blocks of steps."""
    at_s = time.perf_counter()
    readings = tuple(
        MeterReading(
            name=meter.name, covers=meter.covers, update_period_s=meter.update_period_s, energy_j=meter.read_j()
        )
        for meter in meters
    )
    return EnergyReading(at_s=at_s, meters=readings)


def energy_over(start: EnergyReading, end: EnergyReading, *, steps: int, samples: int) -> Energy | Absent:
    """Return the energy between two readings of the same meters, over `steps` steps and `samples` samples.

    It covers the whole device, not only our process. Absent if a meter did not answer, if a counter fell or did not
    move, or if the window is shorter than ten update periods (one second for NVML).
    """
    window_s = end.at_s - start.at_s
    shares: list[MeterShare] = []
    for first, last in zip(start.meters, end.meters, strict=True):
        share = _meter_energy(first, last, window_s=window_s)
        if isinstance(share, Absent):
            return share
        shares.append(share)
    if not shares or steps < 1:
        return Absent("no meter was read" if not shares else "no step ran in the window")
    joules = sum(share.joules for share in shares)
    return Energy(
        joules=joules,
        joules_per_step=joules / steps,
        samples_per_j=samples / joules,
        average_power_w=joules / window_s,
        window_s=window_s,
        resolution_share=max(share.update_period_s for share in shares) / window_s,
        meters=shares,
    )


def energy_of_all(windows: Sequence[Energy]) -> Energy:
    """Join several windows of the same meters."""
    joules = sum(window.joules for window in windows)
    window_s = sum(window.window_s for window in windows)
    return Energy(
        joules=joules,
        joules_per_step=joules / sum(window.joules / window.joules_per_step for window in windows),
        samples_per_j=sum(window.samples_per_j * window.joules for window in windows) / joules,
        average_power_w=joules / window_s,
        window_s=window_s,
        resolution_share=sum(window.resolution_share * window.window_s for window in windows) / window_s,
        meters=[
            replace(same[0], joules=sum(meter.joules for meter in same))
            for same in zip(*(window.meters for window in windows), strict=True)
        ],
    )


def _meter_energy(first: MeterReading, last: MeterReading, *, window_s: float) -> MeterShare | Absent:
    shortest_s = SHORTEST_WINDOW_PERIODS * first.update_period_s
    if window_s < shortest_s:
        return Absent(
            f"measured for {window_s:.3g} s, and the {first.name} counter, which moves every "
            f"{first.update_period_s:g} s, needs {shortest_s:g} s: give the run a larger budget"
        )
    if isinstance(first.energy_j, Absent):
        return first.energy_j
    if isinstance(last.energy_j, Absent):
        return last.energy_j
    joules = last.energy_j - first.energy_j
    if joules <= 0:
        return Absent(f"the {first.name} counter {'stood still' if joules == 0 else 'fell'} over {window_s:.3g} s")
    return MeterShare(name=first.name, covers=first.covers, joules=joules, update_period_s=first.update_period_s)
