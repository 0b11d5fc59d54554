"""Where an axis begins and ends, where its ticks stand and what they say."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from deepstone.report.figure import Unit
from deepstone.units import count, digits

_STEPS: Final = {
    Unit.SECONDS: ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    Unit.BYTES: ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")),
    Unit.FLOPS_PER_S: ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s")),
    Unit.FLOPS_PER_BYTE: ((1.0, "FLOP/byte"),),
}
_READABLE: Final = (1e-4, 1e19)  # numbers outside are written with an exponent
_DECADES_AT_MOST: Final = 10
# What stands between powers of ten, the closest first. Those of the first are at most twofold apart, so that every axis
# has one of them.
_FINE: Final = ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3))
_TICKS_AT_MOST: Final = 12
_LEAST_SPAN: Final = 2.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """What an axis shows: from `low` to `high`, in a unit of so many SI units."""

    low: float
    high: float
    per: float
    unit: str
    ticks: tuple[Tick, ...]


def linear_scale(unit: Unit, values: Iterable[float], *, ticks: int = 9) -> Scale:
    """From 0, or below it where a value is, to the largest."""
    known = [0.0, *values]
    low, high = min(known), max(known)
    if low == high:
        high = low + 1.0
    per, name = _per(unit, max(abs(low), abs(high)))
    step = _nice((high - low) / per / ticks)
    first, last = math.ceil(low / per / step - 1e-9), math.floor(high / per / step + 1e-9)
    marks = tuple(Tick(at=number * step * per, text=_plain(number * step)) for number in range(first, last + 1))
    return Scale(low=low, high=high, per=per, unit=name, ticks=marks)


def log_scale(unit: Unit, values: Iterable[float], *, room: float = 1.5) -> Scale:
    """Around all values above 0, with so much room at both ends; ticks at powers of ten, or closer where few fit."""
    known = [value for value in values if value > 0] or [1.0]
    low, high = min(known) / room, max(known) * room
    if high / low < _LEAST_SPAN:
        low, high = low / _LEAST_SPAN, high * _LEAST_SPAN
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    every = max(1, math.ceil((last - first + 1) / _DECADES_AT_MOST))
    places = [10.0**power for power in range(first, last + 1, every)]
    if len(places) < 3:
        powers = range(first - 1, last + 1)
        closer = ([digit * 10.0**power for power in powers for digit in fine] for fine in _FINE)
        inside = ([place for place in places if low <= place <= high] for places in closer)
        places = next(places for places in inside if len(places) <= _TICKS_AT_MOST)
    marks = tuple(Tick(at=place, text=_counted(place)) for place in places)
    return Scale(low=low, high=high, per=1.0, unit=unit.value, ticks=marks)


def _per(unit: Unit, largest: float) -> tuple[float, str]:
    steps = _STEPS[unit]
    return next(((per, name) for per, name in steps if largest >= per), steps[-1])


def _nice(step: float) -> float:
    """The next of 1, 2, 5, 10, 20 … that is no smaller."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= step * (1 - 1e-9))


def _plain(number: float) -> str:
    if number and not _READABLE[0] <= abs(number) < _READABLE[1]:
        return f"{number:.3g}"
    return f"{number:,.10g}" if abs(number) < 1e10 else digits(number)


def _counted(number: float) -> str:
    """A round number with a prefix: 1 k, 10 G."""
    if not _READABLE[0] <= number < _READABLE[1]:
        return f"{number:.0e}"
    amount, _, prefix = count(number).partition(" ")
    short = amount.rstrip("0").rstrip(".") if "." in amount else amount
    return f"{short} {prefix}".rstrip()
