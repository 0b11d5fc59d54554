"""The range of an axis, its ticks and their labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from deepstone.report.panels import Axis, LineChart, ScatterPlot
from deepstone.report.table import Unit, Value
from deepstone.units import count, digits

_STEPS: Final = {
    Unit.SECONDS: ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    Unit.BYTES: ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")),
    Unit.FLOPS_PER_S: ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s")),
    Unit.FLOPS_PER_BYTE: ((1.0, "FLOP/byte"),),
    Unit.BYTES_PER_S: ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1.0, "B/s")),
    Unit.SAMPLES_PER_S: ((1.0, "images/s"),),
    Unit.OTHER_SAMPLES_PER_S: ((1.0, "samples/s"),),
    Unit.SAMPLES_PER_J: ((1.0, "images/J"),),
    Unit.OTHER_SAMPLES_PER_J: ((1.0, "samples/J"),),
    Unit.RATIO: ((1.0, ""),),
    Unit.SHARE: ((0.01, "%"),),
    Unit.YEAR: ((1.0, ""),),
    Unit.GIGAFLOPS: ((1.0, "GFLOP"),),
    Unit.RELATIVE_ERROR: ((1.0, ""),),
    Unit.NUMBER: ((1.0, ""),),
}
# On a logarithmic axis too; other units have their prefix at each tick.
_PREFIXED: Final = frozenset({Unit.SECONDS, Unit.BYTES, Unit.SHARE})
_READABLE: Final = (1e-4, 1e19)  # numbers outside are written with an exponent
_DECADES_AT_MOST: Final = 10
# What stands between powers of ten, the closest first. Those of the first are at most twofold apart, so that every axis
# has one of them.
_FINE: Final = ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3))
_TICKS_AT_MOST: Final = 12
_BINARY_TICKS_AT_MOST: Final = 10
_LEAST_SPAN: Final = 2.1
_YEAR_ROOM: Final = 0.6  # at least, since those of one year stand side by side
_LEAST_RATIOS: Final = (0.9, 1.1)
# Ratios that lie within the first span have evenly spaced ticks, as 0.9, 0.95, 1; within the second, these.
_FINE_SPAN: Final = 1.7
_COARSE_SPAN: Final = 40.0
_COARSE: Final = (
    *(0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8),
    *(1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 7, 10, 15, 20, 30, 50),
)
_OWN_TICKS_AT_MOST: Final = 12
_BAND_FROM: Final = 9  # points; as many whiskers would be a fence
_NAMES_SHARE: Final = 0.13  # of the years, for names beside the first and the last
_ROOM_ABOVE_AND_BELOW: Final = 2.0
_FARTHEST: Final = 2.0  # end of an interval on a linear axis, in multiples of the largest number


class Scale(Struct, frozen=True, kw_only=True):
    """The range of an axis, from `low` to `high`, with labels at some places and a title."""

    low: float
    high: float
    unit: str
    ticks: Mapping[float, str]
    log: bool = False
    title: str = ""

    def place(self, value: float) -> float:
        """Return the number that lengths along the axis are proportional to."""
        return math.log10(value) if self.log else value

    def share_along(self, value: float) -> float:
        """Return the relative position of a value on the axis, from 0 to 1."""
        low, high = self.place(self.low), self.place(self.high)
        return (self.place(value) - low) / (high - low)


def linear_scale(unit: Unit, values: Iterable[float], *, ticks: int = 9) -> Scale:
    """Make a scale from 0, or from the lowest negative value, to the largest."""
    known = [0.0, *values]
    low, high = min(known), max(known)
    if low == high:
        high = low + 1.0
    per, name = _per(unit, max(abs(low), abs(high)))
    step = _nice((high - low) / per / ticks)
    first, last = math.ceil(low / per / step - 1e-9), math.floor(high / per / step + 1e-9)
    ticks_at = {number * step * per: _plain(number * step) for number in range(first, last + 1)}
    return Scale(low=low, high=high, unit=name, ticks=ticks_at)


def log_scale(unit: Unit, values: Iterable[float], *, room: float = 1.5) -> Scale:
    """Make a scale around all values above 0, with this much room at both ends; ticks at powers of ten, or closer if
    few fit."""
    above = [value for value in values if value > 0] or [1.0]
    if unit is Unit.BYTES:
        return _binary_scale(min(above) / room, max(above) * room)
    per, name = _per(unit, max(above)) if unit in _PREFIXED else (1.0, _STEPS[unit][-1][1])
    known = [value / per for value in above]
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
    ticks = {place * per: _counted(place) for place in places}
    return Scale(low=low * per, high=high * per, unit=name, ticks=ticks, log=True)


def _binary_scale(low: float, high: float) -> Scale:
    """Ticks at powers of two, each with its own prefix: 1 KiB, 32 KiB, 1 MiB."""
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    apart = next(step for step in (1, 2, 5, 10, 20, 40, 100) if (last - first) / step < _BINARY_TICKS_AT_MOST)
    powers = [power for power in range(first, last + 1) if power % apart == 0]
    return Scale(low=low, high=high, unit="", ticks={2.0**power: _binary(power) for power in powers}, log=True)


def _binary(power: int) -> str:
    per, name = _per(Unit.BYTES, 2.0**power)
    return f"{2.0**power / per:g} {name}"


def ratio_scale(values: Iterable[float], *, ticks: int = 8) -> Scale:
    """Make a logarithmic scale around 1, slightly wider than the values."""
    known = [*_LEAST_RATIOS, *(value for value in values if value > 0)]
    low, high = min(known), max(known)
    room = (high / low) ** 0.04
    low, high = low / room, high * room
    span = high / low
    if span <= _FINE_SPAN:
        step = _nice((high - low) / ticks)
        places = [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    else:
        places = [place for place in _COARSE if low <= place <= high]
    if span > _COARSE_SPAN or len(places) < 3:
        return replace(log_scale(Unit.RATIO, known, room=room), unit="")
    return Scale(low=low, high=high, unit="", ticks={at: _plain(at) for at in places}, log=True)


def year_scale(years: Iterable[float], *, room: float) -> Scale:
    """Make a scale around all years, with a tick at each if there are few, and this many years of room for names at
    both ends."""
    known = [round(year) for year in years] or [0]
    low, high = min(known), max(known)
    every = math.ceil((high - low + 1) / _TICKS_AT_MOST)
    ticks = {float(year): str(year) for year in range(low, high + 1, every)}
    room = max(_YEAR_ROOM, room)
    return Scale(low=low - room, high=high + room, unit="", ticks=ticks)


def titled(label: str, unit: str) -> str:
    """Return the title of an axis: its label with the unit, unless the label has it or there is none."""
    is_in_label = not unit or unit in label.split() or unit == label.replace(" per second", "/s")
    return label if is_in_label else f"{label} in {unit}" if label else unit


def _per(unit: Unit, largest: float) -> tuple[float, str]:
    steps = _STEPS[unit]
    return next(((per, name) for per, name in steps if largest >= per), steps[-1])


def _nice(step: float) -> float:
    """Return the next number of 1, 2, 5, 10, 20 … that is not smaller."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= step * (1 - 1e-9))


def _plain(number: float) -> str:
    if number and not _READABLE[0] <= abs(number) < _READABLE[1]:
        return f"{number:.3g}"
    return f"{number:,.10g}" if abs(number) < 1e10 else digits(number)


def _counted(number: float) -> str:
    """Format a round number with a prefix: 1 k, 10 G."""
    if not _READABLE[0] <= number < _READABLE[1]:
        return f"{number:.0e}"
    amount, _, prefix = count(number).partition(" ")
    short = amount.rstrip("0").rstrip(".") if "." in amount else amount
    return f"{short} {prefix}".rstrip()


def axis_scale(axis: Axis, values: Iterable[float], *, room: float = 1.5) -> Scale:
    """Make the scale of an axis. `room` at both ends is for logarithmic axes; ratios have their own."""
    if not axis.log:
        scale = linear_scale(axis.unit, values)
    else:
        scale = ratio_scale(values) if axis.unit is Unit.RATIO else log_scale(axis.unit, values, room=room)
    return _titled(scale, axis)


def line_scales(curves: LineChart) -> tuple[Scale, Scale]:
    points = [point.y for curve in curves.curves for point in curve.points]
    ends = [end for value in points for end in _ends(value)]
    most = farthest(curves)
    y = axis_scale(curves.y, ends if most is None else [min(max(end, -most), most) for end in ends], room=1.4)
    return _titled(_x_scale(curves), curves.x), _with_room(y, 0.05)


def farthest(curves: LineChart) -> float | None:
    """Return where intervals are cut, since a single wild one would press all numbers into a line; None: nowhere."""
    points = [point.y for curve in curves.curves for point in curve.points]
    most = _FARTHEST * max((abs(value.middle) for value in points), default=0.0)
    is_beyond = any(abs(end) > most for value in points for end in _ends(value))
    return most if is_beyond and most > 0 and not curves.y.log else None


def scatter_scales(plane: ScatterPlot) -> tuple[Scale, Scale]:
    """Make the scales of a scatter plot. Lines with a name end with the horizontal axis, which needs no room there."""
    points = [point for group in plane.groups for point in group.points]
    ends = [end for line in plane.lines for end in line.points]
    xs = [*(point.x for point in points), *(x for x, _ in ends)]
    ys = [*(y for point in points for y in _ends(point.y)), *(y for _, y in ends)]
    room = 1.0 if any(line.label for line in plane.lines) else 1.3
    x, y = axis_scale(plane.x, xs, room=room), axis_scale(plane.y, ys, room=_ROOM_ABOVE_AND_BELOW)
    return _with_room(x, 0.05), _with_room(y, 0.05)


def has_band(points: int) -> bool:
    """Whether intervals are drawn as a band, not as whiskers."""
    return points >= _BAND_FROM


def _x_scale(curves: LineChart) -> Scale:
    if curves.names:
        ticks = {float(at): name for at, name in enumerate(curves.names)}
        return Scale(low=-0.5, high=len(curves.names) - 0.5, unit="", ticks=ticks)
    places = [[*(point.x for point in curve.points), *(x for x, _ in curve.gaps)] for curve in curves.curves]
    xs = sorted({x for several in places for x in several})
    if curves.x.unit is Unit.YEAR:
        return year_scale(xs, room=_NAMES_SHARE * (max(xs) - min(xs) + 1) if xs else 0.0)
    scale = _with_room(axis_scale(curves.x, xs, room=1.15), 0.03)
    if not curves.x.log or len(xs) > _OWN_TICKS_AT_MOST or curves.x.unit is Unit.BYTES:
        return scale
    # Batch sizes and thread counts are few, and read best where they stand.
    return replace(scale, ticks={x: _short(x) for x in xs if x > 0})


def _with_room(scale: Scale, share: float) -> Scale:
    """Return the scale with room beyond the end of a linear axis."""
    return scale if scale.log else replace(scale, high=scale.high + share * (scale.high - scale.low))


def _titled(scale: Scale, axis: Axis) -> Scale:
    return replace(scale, title=titled(axis.label, scale.unit))


def _ends(value: Value) -> list[float]:
    return [end for end in (value.low, value.middle, value.high) if end is not None]


def _short(x: float) -> str:
    return f"{x:,.0f}" if x == int(x) else digits(x)
