"""The interface of energy meters. Each meter has its own file; `window` picks those that the machine has."""

from __future__ import annotations

from abc import ABC, abstractmethod

from deepstone.absent import Absent


class Meter(ABC):
    """A hardware counter in joules. It covers a whole device, including everything else that runs there."""

    name: str
    """The name of the counter: "nvml", "rapl package-0"."""
    covers: str
    """What the joules include: "gpu 0, whole board"."""
    update_period_s: float
    """The period in which the counter updates; a reading may be this old."""

    @abstractmethod
    def read_j(self) -> float | Absent:
        """Return joules since an arbitrary start, never falling; absent if the counter stopped answering.

        A reading may take milliseconds, so never read inside a timed block.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the counter. The meter cannot be used afterwards."""
