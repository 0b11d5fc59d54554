"""The effort of a run: how narrow its interval must become, and how long it may take."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

DEFAULT_TARGET_SHARE: Final = 0.02


class Effort(Struct, frozen=True, kw_only=True):
    """A run stops at `target_share`, the relative half width of the interval, or after `budget_s` of timed steps.

    `least_samples`: so many after warm-up, even beyond the budget. Fewer than five give no useful interval, but a run
    may be one of several rounds, whose interval counts.
    """

    target_share: float = DEFAULT_TARGET_SHARE
    budget_s: float = 20.0
    timeout_s: float = 900.0
    launches: int = 1
    least_samples: int = 5
    phases: bool = True  # also time forward, backward, communication and update, in separate steps
    energy_s: float = 2.0  # the window of the energy meters; 0: they are not read

    @property
    def block_s(self) -> float:
        return min(0.5, max(0.02, self.budget_s / 40))
