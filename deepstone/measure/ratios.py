"""Compares A with B: a ratio that names its direction, and the verdict that follows from it.

time_ratio     time of A over time of B       above 1: B is faster
speed_ratio    speed of A over speed of B     above 1: A is faster
"""

from __future__ import annotations

import math
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from deepstone.measure.statistics import Quantity

LEAST_DIFFERENCE: Final = 0.02  # smaller differences do not count
MOST_SPAN: Final = 2.0  # upper end over lower end; a ratio known no better is known only in its direction

Verdict: TypeAlias = Literal["a faster", "b faster", "no difference shown"]

A_FASTER: Final = "a faster"
B_FASTER: Final = "b faster"
NO_DIFFERENCE: Final = "no difference shown"


class Ratio(Struct, frozen=True, kw_only=True):
    """Both directions of one comparison; each is the inverse of the other."""

    time_ratio: Quantity
    speed_ratio: Quantity

    @staticmethod
    def of_times(a_over_b: Quantity) -> Ratio:
        return Ratio(time_ratio=a_over_b, speed_ratio=_inverse(a_over_b))

    @staticmethod
    def of_speeds(a_over_b: Quantity) -> Ratio:
        return Ratio(time_ratio=_inverse(a_over_b), speed_ratio=a_over_b)


def verdict_of(ratio: Ratio, margin: float = LEAST_DIFFERENCE) -> Verdict:
    """Return which side is faster. The whole interval must lie beyond the margin; otherwise no difference is shown."""
    if is_above(ratio.speed_ratio, margin):
        return A_FASTER
    if is_above(ratio.time_ratio, margin):
        return B_FASTER
    return NO_DIFFERENCE


def is_above(ratio: Quantity, margin: float = LEAST_DIFFERENCE) -> bool:
    """Whether the whole interval of a ratio lies above 1, beyond the margin."""
    return ratio.low > 1 + margin


def is_below(ratio: Quantity, margin: float = LEAST_DIFFERENCE) -> bool:
    """Whether the whole interval of a ratio lies below 1, beyond the margin: the inverse lies above it."""
    return ratio.high < 1 / (1 + margin)


def is_wide(ratio: Quantity) -> bool:
    """Whether the interval of a ratio is so wide that it tells a direction at most, and no size."""
    return not ratio.has_interval or ratio.high > MOST_SPAN * ratio.low


def _inverse(ratio: Quantity) -> Quantity:
    """Invert a ratio. If its interval reaches down to 0, the inverse has no upper end."""
    if not ratio.has_interval or ratio.low > 0:
        return ratio.inverse(1.0)
    return Quantity.of(median=1 / ratio.median, low=1 / ratio.high, high=math.inf, n=ratio.n)
