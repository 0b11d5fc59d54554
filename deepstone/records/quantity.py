"""The interval of a quantity as records write it, and why there is none where there is none.

One sample tells nothing about its spread. The bootstrap would draw it again and again and find an interval of no width,
which reads as certainty. So `low` and `high` are each absent, with the reason. Two samples give an interval, and the
doubt `few_samples` says how little that is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from deepstone.absent import Absent
from deepstone.records.schema import is_absent
from deepstone.units import seconds

ONE_SAMPLE: Final = "one sample has no interval"


def interval_of(quantity: Mapping[str, Any]) -> tuple[float, float] | Absent:
    """Both ends, or why there are none.

    Records of earlier versions give one sample the interval from itself to itself: that is none, and is read as none.
    """
    low, high = quantity["low"], quantity["high"]
    if is_absent(low) or is_absent(high):
        return Absent(str((low if is_absent(low) else high)["absent"]))
    if quantity["n"] == 1 and low == high:
        return Absent(ONE_SAMPLE)
    return low, high


def span_in_words(quantity: Mapping[str, Any], shown: Callable[[float], str]) -> str:
    """As in 41 – 43.6; where there is no interval, the reason."""
    interval = interval_of(quantity)
    return interval.reason if isinstance(interval, Absent) else f"{shown(interval[0])} – {shown(interval[1])}"


def interval_in_words(quantity: Mapping[str, Any], shown: Callable[[float], str]) -> str:
    """As in 95 % interval 41 – 43.6; where there is none, the reason."""
    words = span_in_words(quantity, shown)
    return words if isinstance(interval_of(quantity), Absent) else f"95 % interval {words}"


def is_resolved(quantity: Mapping[str, Any]) -> bool:
    """Whether a time is known to be one: not where it is a difference that may be negative."""
    interval = interval_of(quantity)
    return (quantity["median"] if isinstance(interval, Absent) else interval[0]) >= 0


def time_in_words(quantity: Mapping[str, Any]) -> str:
    """As in 12.3 ms; a difference that may be negative is not resolved, and has its interval beside it."""
    if is_resolved(quantity):
        return seconds(quantity["median"])
    return f"not resolved ({span_in_words(quantity, seconds)})"


def as_measured(quantity: Mapping[str, Any]) -> dict[str, Any]:
    """The same with the ends absent where there is no interval, whichever version wrote it."""
    interval = interval_of(quantity)
    if not isinstance(interval, Absent):
        return dict(quantity)
    return {**quantity, "low": interval.to_json(), "high": interval.to_json()}
