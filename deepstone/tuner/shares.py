"""How the time of a search is divided, and how long its parts may take.

    budget   ├──────── search: a half ────────┤─ same: a tenth ─┤─ finals: a quarter ─┤─ explanation: the rest ─┤

On a GPU, where a start takes longer than the steps, the proof has a fifth. What a part does not need, the next one has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from deepstone.checks.first_steps import STEPS
from deepstone.setups.tuning import DeviceKind

_SEARCH: Final[Mapping[DeviceKind, float]] = {"cpu": 0.5, "gpu": 0.45}
_SAME: Final[Mapping[DeviceKind, float]] = {"cpu": 0.1, "gpu": 0.2}
_FINALS: Final = 0.25
_AFTER_FINALS: Final = 0.15  # what finals leave at least, if they may take more than their share
_OVER: Final = 1.1  # a launch that is under way may end so much later than asked for
_LONGEST_LOOK: Final = 0.2  # the first look at the default may take more
_LONGEST_CHECK: Final = 0.3  # before the finals
_LONG_STEPS: Final = 0.2  # where the check takes longer for its steps than its share
_STEPS_OF_CHECK: Final = 5 * STEPS  # three batches, rounded weights, one setup
_HOPELESS: Final = 8.0  # times the step of the default, as bf16 without instructions for it takes
_SHORT_STEP: Final = 0.01  # a look at such steps costs little, and one may be slow by accident
# With time for so many launches like the longest so far, a search and its finals have a sense. On a GPU most of such a
# launch is the compiler, and later ones find what it made.
_LAUNCHES: Final[Mapping[DeviceKind, int]] = {"cpu": 20, "gpu": 8}
_NICE_S: Final = 30
_MUCH_MORE: Final = 1.5  # times the budget that did not do: a little more would not do either
LEAST_TIMEOUT_S: Final = 5.0


class Shares(Struct, frozen=True, kw_only=True):
    """Of one budget on one kind of device, in seconds."""

    budget_s: float
    device: DeviceKind

    @property
    def search_s(self) -> float:
        return _SEARCH[self.device] * self.budget_s

    @property
    def same_s(self) -> float:
        return _SAME[self.device] * self.budget_s

    @property
    def finals_s(self) -> float:
        return _FINALS * self.budget_s

    @property
    def explain_s(self) -> float:
        return self.budget_s - self.search_s - self.same_s - self.finals_s

    @property
    def end_s(self) -> float:
        """When the last launch must have ended."""
        return _OVER * self.budget_s

    def all_finals_s(self, left_s: float) -> float:
        """What finals may take of the time that is left."""
        return min(left_s, max(self.finals_s, left_s - _AFTER_FINALS * self.budget_s))

    def check_s(self, *, launches_s: float, default_step_s: float) -> float:
        """For the check of sameness: its share, or more where starts are slow or steps are long. `launches_s`: what the
        launches of a check of one setup take."""
        least_s = min(launches_s, _LONGEST_CHECK * self.budget_s)
        all_steps_s = min(_STEPS_OF_CHECK * default_step_s, _LONG_STEPS * self.budget_s)
        return max(self.same_s, least_s, all_steps_s)

    def longest_look_s(self, *, is_first: bool) -> float:
        """So that one launch cannot use up the time of the others."""
        return self.search_s if is_first else _LONGEST_LOOK * self.budget_s

    def slowest_step_s(self, like_the_default_s: float) -> float:
        """How long a step may take in a search for speed; what takes longer is not worth the time of a look.
        `like_the_default_s`: what a step takes that is as fast as the default's."""
        return max(_HOPELESS * like_the_default_s, _SHORT_STEP * self.budget_s)

    def enough_s(self, launch_s: float) -> float:
        """A budget that would do where a launch takes so long."""
        least_s = max(_LAUNCHES[self.device] * launch_s, _MUCH_MORE * self.budget_s)
        return _NICE_S * math.ceil(least_s / _NICE_S)
