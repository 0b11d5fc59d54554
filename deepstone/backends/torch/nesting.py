"""Which of many nested intervals a moment lies in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Label = TypeVar("Label")


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval(Generic[Label]):
    start_s: float
    end_s: float
    label: Label


def innermost(intervals: Iterable[Interval[Label]], moments_s: Sequence[float]) -> list[Label | None]:
    """For each moment the label of the interval around it that began last; None outside all of them."""
    ordered = sorted(intervals, key=lambda interval: (interval.start_s, -interval.end_s))
    found: list[Label | None] = [None] * len(moments_s)
    open_: list[Interval[Label]] = []
    position = 0
    for number in sorted(range(len(moments_s)), key=lambda number: moments_s[number]):
        moment_s = moments_s[number]
        while position < len(ordered) and ordered[position].start_s <= moment_s:
            open_.append(ordered[position])
            position += 1
        open_ = [interval for interval in open_ if interval.end_s > moment_s]
        found[number] = open_[-1].label if open_ else None
    return found
