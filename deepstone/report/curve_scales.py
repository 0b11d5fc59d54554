"""Both axes of a panel of curves, for both drawers."""

from __future__ import annotations

from typing import Final

from deepstone.report.figure import Curves, Unit
from deepstone.report.scales import Scale, Tick, linear_scale, log_scale, ratio_scale, year_scale
from deepstone.units import digits

_OWN_TICKS_AT_MOST: Final = 12
_BAND_FROM: Final = 9  # stops; as many whiskers would be a fence
_NAMES_SHARE: Final = 0.13  # of the years, for names beside the first and the last


def curve_scales(curves: Curves) -> tuple[Scale, Scale]:
    return _x_scale(curves), _y_scale(curves)


def has_band(stops: int) -> bool:
    """Whether intervals are drawn as a band, not as whiskers."""
    return stops >= _BAND_FROM


def _x_scale(curves: Curves) -> Scale:
    if curves.names:
        ticks = tuple(Tick(at=float(at), text=name) for at, name in enumerate(curves.names))
        return Scale(low=-0.5, high=len(curves.names) - 0.5, per=1.0, unit="", ticks=ticks)
    xs = sorted({place.x for curve in curves.curves for place in (*curve.stops, *curve.holes)})
    if curves.x.unit is Unit.YEAR:
        return year_scale(xs, room=_NAMES_SHARE * (max(xs) - min(xs) + 1) if xs else 0.0)
    if not curves.x.log:
        scale = linear_scale(curves.x.unit, xs)
        room = (scale.high - scale.low) * 0.03
        return Scale(low=scale.low, high=scale.high + room, per=scale.per, unit=scale.unit, ticks=scale.ticks)
    scale = log_scale(curves.x.unit, xs, room=1.15)
    if len(xs) > _OWN_TICKS_AT_MOST:
        return scale
    # Batch sizes and thread counts are few, and read best where they stand.
    ticks = tuple(Tick(at=x, text=_short(x)) for x in xs if x > 0)
    return Scale(low=scale.low, high=scale.high, per=1.0, unit=scale.unit, ticks=ticks)


def _y_scale(curves: Curves) -> Scale:
    stops = [stop.y for curve in curves.curves for stop in curve.stops]
    ys = [y for value in stops for y in (value.low, value.middle, value.high) if y is not None]
    if curves.y.log:
        return ratio_scale(ys) if curves.y.unit is Unit.RATIO else log_scale(curves.y.unit, ys, room=1.4)
    scale = linear_scale(curves.y.unit, ys)
    room = (scale.high - scale.low) * 0.05
    return Scale(low=scale.low, high=scale.high + room, per=scale.per, unit=scale.unit, ticks=scale.ticks)


def _short(x: float) -> str:
    return f"{x:,.0f}" if x == int(x) else digits(x)
