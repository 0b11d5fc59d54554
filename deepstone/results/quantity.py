"""A measured quantity: a median with its 95 % interval, or with the reason why there is none.

One sample has no spread. The bootstrap would give an interval of no width, which looks like certainty. So both ends are
absent, with the reason. Two samples give an interval, with the doubt `few_samples`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import msgspec

from deepstone.absent import Absent
from deepstone.results.parts import Count, Number, OrAbsent, Part
from deepstone.units import seconds

ONE_SAMPLE: Final = "one sample has no interval"


class Quantity(Part, frozen=True, kw_only=True, rename={"lower": "low", "upper": "high"}):
    """`low` and `high` are infinite if there is no interval, so that it never lies beyond a limit as a whole. `lower`
    and `upper` are the ends as stored."""

    median: Number
    lower: OrAbsent[Number]
    upper: OrAbsent[Number]
    n: Count

    def __post_init__(self) -> None:
        if isinstance(self.lower, Absent) != isinstance(self.upper, Absent):
            raise ValueError("low and high must be absent together")
        if not self.low <= self.median <= self.high:
            raise ValueError("low <= median <= high does not hold")

    @staticmethod
    def of(*, median: float, low: float, high: float, n: int, no_interval: str = "") -> Quantity:
        if no_interval:
            return Quantity.without_interval(median, n=n, why=no_interval)
        return Quantity(median=median, lower=low, upper=high, n=n)

    @staticmethod
    def without_interval(median: float, *, n: int = 1, why: str = ONE_SAMPLE) -> Quantity:
        """Make a number without an interval."""
        return Quantity(median=median, lower=Absent(why), upper=Absent(why), n=n)

    @property
    def no_interval(self) -> str:
        """Return why there is no interval, or an empty text. In early records one sample has an interval of no
        width."""
        if isinstance(self.lower, Absent):
            return self.lower.reason
        return ONE_SAMPLE if self.n == 1 and self.lower == self.upper else ""

    @property
    def has_interval(self) -> bool:
        return not self.no_interval

    @property
    def low(self) -> float:
        return -math.inf if isinstance(self.lower, Absent) or self.no_interval else self.lower

    @property
    def high(self) -> float:
        return math.inf if isinstance(self.upper, Absent) or self.no_interval else self.upper

    @property
    def relative_half_width(self) -> float:
        return (self.high - self.low) / 2 / abs(self.median) if self.median else math.inf

    @property
    def is_resolved(self) -> bool:
        """Whether a time is positive; a time found by subtraction may have an interval that reaches below 0."""
        return (self.low if self.has_interval else self.median) >= 0

    def inverse(self, numerator: float) -> Quantity:
        """Return numerator / self: a time becomes a rate."""
        median = numerator / self.median
        if not self.has_interval:
            return Quantity.without_interval(median, n=self.n, why=self.no_interval)
        high = numerator / self.low if self.low > 0 else math.inf
        return Quantity.of(median=median, low=numerator / self.high, high=high, n=self.n)

    def resting_on(self, n: int) -> Quantity:
        """Return the same quantity with another number of samples."""
        return msgspec.structs.replace(self, n=n)

    def widened(self, margin: float) -> Quantity:
        """Return the same quantity with an interval that is wider by this share on both sides."""
        low, high = self.low / (1 + margin), self.high * (1 + margin)
        return Quantity.of(median=self.median, low=low, high=high, n=self.n, no_interval=self.no_interval)

    def scaled(self, factor: float) -> Quantity:
        """Return the quantity in another unit: multiply by a positive number."""
        if not self.has_interval:
            return Quantity.without_interval(self.median * factor, n=self.n, why=self.no_interval)
        return Quantity.of(median=self.median * factor, low=self.low * factor, high=self.high * factor, n=self.n)

    def span_in_words(self, shown: Callable[[float], str]) -> str:
        """Format as 41 – 43.6, or the reason if there is no interval."""
        return self.no_interval or f"{shown(self.low)} – {shown(self.high)}"

    def interval_in_words(self, shown: Callable[[float], str]) -> str:
        """Format as 95 % interval 41 – 43.6, or the reason if there is none."""
        return self.no_interval or f"95 % interval {self.span_in_words(shown)}"

    def time_in_words(self) -> str:
        """Format as 12.3 ms; a time that is not resolved is shown with its interval."""
        return seconds(self.median) if self.is_resolved else f"not resolved ({self.span_in_words(seconds)})"
