"""What every energy meter offers. One file per meter beside this one; `window` picks those a machine has."""

from __future__ import annotations

from abc import ABC, abstractmethod

from deepstone.absent import Absent


class Meter(ABC):
    """A counter of joules in hardware. It covers a whole device: whatever else runs there is counted too."""

    name: str
    """Which counter: "nvml", "rapl package-0"."""
    covers: str
    """What its joules include: "gpu 0, whole board"."""
    update_period_s: float
    """How often the counter moves; between two moves it stands still, so a reading may be this old."""

    @abstractmethod
    def read_j(self) -> float | Absent:
        """Joules since an arbitrary start, never falling; absent with the reason where the counter stopped answering.

        A reading may take milliseconds, so none belongs inside what is timed.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the counter. The meter is of no use afterwards."""
