"""What the clock of another machine shows, from round pings.

    our clock      sent ─────┬───────────▶ received        the answer was given somewhere in between
    their clock              answered                      offset = answered - middle, wrong by at most half the trip

Of many round pings the shortest tells most. Two clocks do not run at the same speed, so the offset is read again from
time to time; between two readings it changes linearly. Beyond the first and the last it stays what it was there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

PINGS: Final = 200  # for a reading


class Ping(Struct, frozen=True, kw_only=True):
    """One round trip. `answered_s` is on their clock, the others on ours."""

    sent_s: float
    answered_s: float
    received_s: float

    @property
    def took_s(self) -> float:
        return self.received_s - self.sent_s


class Reading(Struct, frozen=True, kw_only=True):
    """How far their clock was ahead of ours when it showed `at_s`; it is wrong by at most `error_s`."""

    at_s: float
    offset_s: float
    error_s: float


def reading(pings: Sequence[Ping]) -> Reading:
    best = min(pings, key=lambda ping: ping.took_s)
    middle_s = best.sent_s + best.took_s / 2
    return Reading(at_s=best.answered_s, offset_s=best.answered_s - middle_s, error_s=best.took_s / 2)


class Alignment(Struct, frozen=True, kw_only=True):
    """From their clock to ours. Without readings both are the same clock."""

    readings: tuple[Reading, ...] = ()

    @property
    def is_shared(self) -> bool:
        return not self.readings

    @property
    def error_s(self) -> float:
        """The offset between two readings is wrong by at most the larger error of both."""
        return max((each.error_s for each in self.readings), default=0.0)

    @property
    def offset_s(self) -> float:
        """At the first reading."""
        return self.readings[0].offset_s if self.readings else 0.0

    @property
    def drift(self) -> float:
        """How many seconds their clock gains on ours in each of its seconds, from the first to the last reading."""
        if len(self.readings) < 2:
            return 0.0
        first, last = self.readings[0], self.readings[-1]
        return (last.offset_s - first.offset_s) / (last.at_s - first.at_s)

    def with_reading(self, latest: Reading) -> Alignment:
        return Alignment(readings=(*self.readings, latest))

    def ours(self, their_s: float) -> float:
        """A time of their clock on ours."""
        return their_s - self._offset_at(their_s) if self.readings else their_s

    def _offset_at(self, their_s: float) -> float:
        after = bisect_right(self.readings, their_s, key=lambda each: each.at_s)
        if after == 0:
            return self.readings[0].offset_s
        if after == len(self.readings):
            return self.readings[-1].offset_s
        before, later = self.readings[after - 1], self.readings[after]
        share = (their_s - before.at_s) / (later.at_s - before.at_s)
        return before.offset_s + share * (later.offset_s - before.offset_s)


def error_between(alignments: Sequence[Alignment]) -> float:
    """By how much a difference between times of two of these clocks may be wrong."""
    return sum(sorted((each.error_s for each in alignments), reverse=True)[:2])
