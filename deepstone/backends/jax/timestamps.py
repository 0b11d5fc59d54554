"""Times of steps that the device works off by itself, taken without ever letting it run dry.

    host     step step set(1) ┄┄waits for 0┄┄ step step set(2) ┄┄waits for 1┄┄ …
    device   ███ sample 1 ███████████████████ ███ sample 2 ████████████████████

JAX has no events of the device's own. So the host stays one sample ahead: it hands over a sample, then waits for the
end of the sample before it, and reads the clock there. JAX lets two or three programs run ahead, so of samples of more
steps than that every timestamp comes equally early, and only the first and the last sample of a block are off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deepstone.backends.base import Timestamps


class OneAheadTimestamps(Timestamps):
    """`last_output` gives an array of the step that was handed over last, or None before the first."""

    def __init__(self, count: int, clock: Callable[[], float], last_output: Callable[[], Any]) -> None:
        super().__init__(count, clock)
        self._last_output = last_output
        self._waiting: tuple[int, Any, float] | None = None

    def set(self, position: int) -> None:
        handed_over_s = self._clock()
        self.waited_s += self.finish()
        self._waiting = position, self._last_output(), handed_over_s

    def finish(self) -> float:
        """Take the timestamp that is still open, if there is one, and tell how long that took.

        Where its sample is done already, the host is the slower one, and when exactly the device was done is not known.
        It was idle soon after the sample had been handed over, so that is the time: one rule for all samples, or times
        would jump by a whole sample whenever the device is just ready, or just not. Only if the device was still at the
        sample before it then, so that it cannot have been, the time is halfway between the end of that one and now.
        """
        if self._waiting is None:
            return 0.0
        position, output, handed_over_s = self._waiting
        self._waiting = None
        before = self._clock()
        if output is None or output.is_ready():
            previous_s = self._times[position - 1] if position > 0 else handed_over_s - 1.0
            self._times[position] = handed_over_s if handed_over_s > previous_s else (previous_s + before) / 2
            return 0.0
        output.block_until_ready()
        self._times[position] = self._clock()
        return self._times[position] - before
