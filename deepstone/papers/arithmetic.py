"""Sums and ratios of quantities whose errors are not known to be independent: bounds come from the ends of all."""

from __future__ import annotations

import math
from collections.abc import Sequence

from deepstone.measure.statistics import Quantity
from deepstone.units import digits


def total(parts: Sequence[Quantity]) -> Quantity:
    return Quantity(
        median=math.fsum(part.median for part in parts),
        low=math.fsum(part.low for part in parts),
        high=math.fsum(part.high for part in parts),
        n=min((part.n for part in parts), default=0),
    )


def ratio(above: Quantity, below: Quantity) -> Quantity:
    """Of two positive quantities."""
    return Quantity(
        median=above.median / below.median,
        low=above.low / below.high,
        high=above.high / below.low if below.low > 0 else math.inf,
        n=min(above.n, below.n),
    )


def widened(value: Quantity, margin: float) -> Quantity:
    """The interval of a ratio made wider by a factor on both sides."""
    return Quantity(median=value.median, low=value.low / (1 + margin), high=value.high * (1 + margin), n=value.n)


def share(part: Quantity, rest: Quantity) -> Quantity:
    """Of a part in the whole that it makes up with the rest."""
    return Quantity(
        median=part.median / (part.median + rest.median),
        low=part.low / (part.low + rest.high),
        high=part.high / (part.high + rest.low),
        n=min(part.n, rest.n),
    )


def share_in_words(value: Quantity) -> str:
    """As in 74.3 % (74.2 – 74.4)."""
    middle, low, high = (digits(100 * part) for part in (value.median, value.low, value.high))
    return f"{middle} % ({low} – {high})"


def in_words(value: Quantity) -> str:
    """As in 1.52 (1.40 – 1.66)."""
    return f"{digits(value.median)} ({digits(value.low)} – {digits(value.high)})"
