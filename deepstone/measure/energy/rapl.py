"""The energy counters of CPU packages (RAPL) through sysfs; those of AMD have the same name."""

from __future__ import annotations

from pathlib import Path

from deepstone.absent import Absent
from deepstone.measure.energy.base import Meter

POWERCAP = Path("/sys/class/powercap")

# The counter's own period; see Intel's manual, volume 3, "RAPL interfaces".
_UPDATE_PERIOD_S = 1e-3


class WrappingCounter:
    """Turns a counter that wraps around after its largest value into one that never falls.

    Read it at least once per turn: a package at 300 W wraps around about every 15 minutes.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._turns = 0
        self._last = 0

    def total(self, reading: int) -> int:
        if reading < self._last:
            self._turns += 1
        self._last = reading
        return self._turns * self._largest + reading


class RaplMeter(Meter):
    """Joules of one CPU package: all its cores and caches, for all their users, without the memory modules."""

    def __init__(self, *, zone: Path, package: str, largest_uj: int) -> None:
        self.name = f"rapl {package}"
        self.covers = f"cpu {package.replace('-', ' ')}"
        self.update_period_s = _UPDATE_PERIOD_S
        self._path = zone / "energy_uj"
        self._counter = WrappingCounter(largest_uj)

    def read_j(self) -> float | Absent:
        try:
            reading_uj = int(self._path.read_text())
        except OSError as error:
            return _unreadable(self._path, error)
        return self._counter.total(reading_uj) / 1e6

    def close(self) -> None:
        """Nothing is open."""


def open_rapl_meters(powercap: Path = POWERCAP) -> list[RaplMeter] | Absent:
    """Open a meter for every CPU package, or none: the energy of only some packages would look like a saving."""
    if not powercap.is_dir():
        return Absent(f"no RAPL: {powercap} is not there (usual in a virtual machine)")
    meters: list[RaplMeter] = []
    # Zones within a package (cores, memory) are named intel-rapl:0:0; intel-rapl-mmio counts the packages again.
    for zone in sorted(powercap.glob("intel-rapl:*")):
        if zone.name.count(":") != 1:
            continue
        try:
            package = (zone / "name").read_text().strip()
            largest_uj = int((zone / "max_energy_range_uj").read_text())
        except OSError as error:
            return _unreadable(zone, error)
        if not package.startswith("package"):
            continue
        meter = RaplMeter(zone=zone, package=package, largest_uj=largest_uj)
        first_j = meter.read_j()
        if isinstance(first_j, Absent):
            return first_j
        meters.append(meter)
    return meters or Absent(f"no RAPL: {powercap} lists no CPU package (usual in a virtual machine)")


def _unreadable(path: Path, error: OSError) -> Absent:
    if isinstance(error, PermissionError):
        return Absent(
            f"RAPL may be read by root only ({path}); to allow it until the next boot: "
            "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj"
        )
    return Absent(f"RAPL did not answer: {error}")
