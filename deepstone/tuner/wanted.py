"""What the user asked for: what is sought, under which limits, in which time, and what it makes of a look."""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.results.tune import Look, SameLevel, TuneLimit, TuneObjective, broken_limit

BUDGET_S: Final = 600.0
LEAST_BUDGET_S: Final = 5.0


class Wanted(Struct, frozen=True, kw_only=True):
    """`timed_s`: seconds of timed steps in a look; None: as many as fit the device."""

    objective: TuneObjective
    limits: tuple[TuneLimit, ...] = ()
    budget_s: float = BUDGET_S
    level: SameLevel = "close"
    timeout_s: float = 900.0
    timed_s: float | None = None

    @property
    def needs_energy(self) -> bool:
        return self.objective.name == "energy" or any(limit.name == "power" for limit in self.limits)

    def value(self, look: Look) -> float | None:
        """The log of what is sought; None if the look failed or breaks a limit."""
        if isinstance(look.samples_per_s, Absent) or self.broken_limit(look):
            return None
        match self.objective.name:
            case "throughput":
                return math.log(look.samples_per_s)
            case "energy":
                return None if isinstance(look.samples_per_j, Absent) else math.log(look.samples_per_j)
            case "memory":
                return None if isinstance(look.peak_bytes, Absent) else -math.log(max(1, look.peak_bytes))

    def broken_limit(self, look: Look) -> str:
        """Which limit a look breaks, in words; empty if none."""
        return broken_limit(self.limits, look)
