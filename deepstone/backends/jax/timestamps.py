"""Times steps that run asynchronously on the device, without ever leaving it idle.

    host     step step set(1) ┄┄waits for 0┄┄ step step set(2) ┄┄waits for 1┄┄ …
    device   ███ sample 1 ███████████████████ ███ sample 2 ████████████████████

JAX has no device events. So the host stays one sample ahead: it enqueues a sample, waits for the end of the sample
before it, and reads the clock. JAX lets two or three programs run ahead. If samples have more steps than that, every
timestamp is early by the same time, and only the first and the last sample of a block are inexact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deepstone.backends.base import Timestamps


class OneAheadTimestamps(Timestamps):
    """Timestamps taken one sample behind. `last_output` returns an array of the last enqueued step, or None before the
    first."""

    def __init__(self, count: int, clock: Callable[[], float], last_output: Callable[[], Any]) -> None:
        super().__init__(count, clock)
        self._last_output = last_output
        self._waiting: tuple[int, Any, float] | None = None

    def set(self, position: int) -> None:
        handed_over_s = self._clock()
        self.waited_s += self.finish()
        self._waiting = position, self._last_output(), handed_over_s

    def finish(self) -> float:
        """Take the open timestamp, if there is one, and return how long that took.

        If its sample is finished already, the host is slower, and the exact end on the device is unknown. The device
        was idle soon after the sample was enqueued, so that is the time. One rule for all samples keeps times from
        jumping by a whole sample. Only if the device was still busy with the sample before it then, the time is halfway
        between the end of that one and now.
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
