"""A measured quantity: a median with its 95 % interval, and why there is none where there is none.

One sample tells nothing about its spread. The bootstrap would draw it again and again and find an interval of no width,
which reads as certainty. So both ends are absent, with the reason. Two samples give an interval, and the doubt
`few_samples` says how little that is worth.
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
    """`low` and `high` are infinite where there is no interval: whoever asks whether the whole interval lies beyond a
    limit is told no. `lower` and `upper` are the ends as they are written."""

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
            return Quantity.alone(median, n=n, why=no_interval)
        return Quantity(median=median, lower=low, upper=high, n=n)

    @staticmethod
    def alone(median: float, *, n: int = 1, why: str = ONE_SAMPLE) -> Quantity:
        """A number without an interval."""
        return Quantity(median=median, lower=Absent(why), upper=Absent(why), n=n)

    @property
    def no_interval(self) -> str:
        """Why there is none; empty where there is one. Early records give one sample the interval of no width."""
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
        """Whether a time is known to be one: not where it is a difference that may be negative."""
        return (self.low if self.has_interval else self.median) >= 0

    def inverse(self, numerator: float) -> Quantity:
        """numerator / self: a time becomes a rate."""
        median = numerator / self.median
        if not self.has_interval:
            return Quantity.alone(median, n=self.n, why=self.no_interval)
        high = numerator / self.low if self.low > 0 else math.inf
        return Quantity.of(median=median, low=numerator / self.high, high=high, n=self.n)

    def resting_on(self, n: int) -> Quantity:
        """The same, said to rest on so many samples."""
        return msgspec.structs.replace(self, n=n)

    def widened(self, margin: float) -> Quantity:
        """With an interval that reaches further by this share on both sides."""
        low, high = self.low / (1 + margin), self.high * (1 + margin)
        return Quantity.of(median=self.median, low=low, high=high, n=self.n, no_interval=self.no_interval)

    def scaled(self, factor: float) -> Quantity:
        """In another unit: each end times a positive number."""
        if not self.has_interval:
            return Quantity.alone(self.median * factor, n=self.n, why=self.no_interval)
        return Quantity.of(median=self.median * factor, low=self.low * factor, high=self.high * factor, n=self.n)

    def span_in_words(self, shown: Callable[[float], str]) -> str:
        """As in 41 – 43.6; where there is no interval, the reason."""
        return self.no_interval or f"{shown(self.low)} – {shown(self.high)}"

    def interval_in_words(self, shown: Callable[[float], str]) -> str:
        """As in 95 % interval 41 – 43.6; where there is none, the reason."""
        return self.no_interval or f"95 % interval {self.span_in_words(shown)}"

    def time_in_words(self) -> str:
        """As in 12.3 ms; a difference that may be negative is not resolved, and has its interval beside it."""
        return seconds(self.median) if self.is_resolved else f"not resolved ({self.span_in_words(seconds)})"
