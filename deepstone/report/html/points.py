"""Line charts and scatter plots for the page: points and lines between two axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

from deepstone.report.html.plot import (
    FAINT,
    INK,
    Dot,
    Drawing,
    Margin,
    Mark,
    Path,
    Plot,
    Texts,
    Whisker,
    Words,
    keys,
    lines,
    point_words,
    ruler,
)
from deepstone.report.labels import PointName, Sizes, line_names, point_names, scatter_names
from deepstone.report.panels import Line, LineChart, Point, PointGroup, ScatterPlot
from deepstone.report.scales import Scale, has_band, line_scales, scatter_scales
from deepstone.report.table import Unit
from deepstone.report.wording import SHOWN, cut, value_words

_LINES_PX: Final = 360
_SCATTER_PX: Final = 460
_LINES_MARGIN: Final = Margin(top=14, bottom=48, left=66, right=14)
_SCATTER_MARGIN: Final = Margin(top=8, bottom=44, left=62, right=10)
_WHY_ROOM: Final = 20
_BESIDE_PX: Final = 5.0
# Names are placed for the narrowest window that shows them; a wider one has more room.
_LINES_NAMES: Final = Sizes(width=600.0, height=_LINES_PX - 62.0, letter=6.2, line=14.0)
_SCATTER_NAMES: Final = Sizes(width=560.0, height=_SCATTER_PX - 60.0, letter=6.2, line=14.0)


def lines_plot(curves: LineChart) -> Plot:
    x, y = scales = line_scales(curves)
    named = {at: curve for curve in reversed(curves.curves) for at, _ in curve.gaps}  # one name where several are
    names = list(point_names(curves, scales, _LINES_NAMES))
    own = [_groups(curves, curve, y, named, names) for curve in curves.curves]
    starts = list(accumulate(map(len, own), initial=0))
    return Plot(
        title=curves.title,
        keys=keys(curves, lambda place: range(starts[place], starts[place + 1])),
        drawing=Drawing(
            groups=tuple(group for several in own for group in several),
            x=ruler(x, grid=False, line=True),
            y=ruler(y),
            margin=_LINES_MARGIN,
            height_px=_LINES_PX,
        ),
    )


def scatter_plot(plane: ScatterPlot) -> Plot:
    x, y = scales = scatter_scales(plane)
    straight_lines = tuple(_straight(line) for line in plane.lines)
    of_lines = tuple(
        Words(
            x=name.end[0],
            y=name.end[1],
            lines=(name.line.label,),
            side=name.side,
            shift=(0.0, name.lines_up * _SCATTER_NAMES.line),
            above=True,
            colour=INK,
        )
        for name in line_names(plane, x)
    )
    names = scatter_names(plane, scales, _SCATTER_NAMES)
    return Plot(
        title=plane.title,
        keys=keys(plane, lambda place: (1 + place,)),
        drawing=Drawing(
            groups=(straight_lines, *(_dots(plane, group, names) for group in plane.groups), of_lines),
            x=ruler(x),
            y=ruler(y),
            margin=_SCATTER_MARGIN,
            height_px=_SCATTER_PX,
        ),
    )


def _groups(
    curves: LineChart, curve: PointGroup, y: Scale, named: Mapping[float, PointGroup], names: Sequence[PointName]
) -> tuple[tuple[Mark, ...], ...]:
    """Return the groups of a series: its band, line, gaps, points apart, and the names of its points."""
    return (
        _band(curve, y),
        _line(curves, curve, y, apart=False),
        _gaps(curves, curve, y, named),
        _line(curves, curve, y, apart=True),
        tuple(point_words(name, INK) for name in names if name.series is curve.series),
    )


def _band(curve: PointGroup, y: Scale) -> tuple[Path, ...]:
    """Return the band around the curve; nothing if whiskers show the intervals."""
    known = [(point.x, point.y.low, point.y.high) for point in curve.points if has_band(len(curve.points))]
    spans = [(x, max(y.low, low), min(y.high, high)) for x, low, high in known if low is not None and high is not None]
    around = (*((x, high) for x, _, high in spans), *((x, low) for x, low, _ in reversed(spans)))
    return (Path(points=around, colour=curve.series.colour, area=True),) if around else ()


def _line(curves: LineChart, curve: PointGroup, y: Scale, *, apart: bool) -> tuple[Mark, ...]:
    """Return the points with their intervals, and the line through those that are not apart."""
    series = curve.series
    points = [point for point in curve.points if point.apart == apart]
    places = tuple((point.x, point.y.middle) for point in points)
    joined = (Path(points=places, colour=series.colour, dashed=series.published),) if len(points) > 1 else ()
    intervals = () if has_band(len(curve.points)) else _intervals(points, series.colour, y.low, y.high)
    dots = (Dot.of(series, point.x, point.y.middle, _tooltip(curves, series.name, point)) for point in points)
    doubts = (
        Words(
            x=point.x,
            y=point.y.middle,
            lines=("†",),
            side="right" if point.label else "left",
            shift=(-_BESIDE_PX if point.label else _BESIDE_PX, _BESIDE_PX),
            above=True,
        )
        for point in points
        if point.doubtful
    )
    return (*(() if apart else joined), *intervals, *dots, *doubts)


def _intervals(points: Sequence[Point], colour: str, least: float, most: float = math.inf) -> tuple[Whisker, ...]:
    """Return the intervals, cut at the ends of the axis."""
    return tuple(
        Whisker(at=point.x, low=max(least, point.y.low), high=min(most, point.y.high), colour=colour, upright=True)
        for point in points
        if point.y.low is not None and point.y.high is not None
    )


def _gaps(curves: LineChart, curve: PointGroup, y: Scale, named: Mapping[float, PointGroup]) -> tuple[Mark, ...]:
    """Return the gaps at the lower end of the axis, with the start of the reason; the tooltip has all of it."""
    crosses = (
        Dot(
            x=x,
            y=y.low,
            colour=curve.series.colour,
            symbol="cross",
            size_px=9,
            told=lines(curve.series.name, f"{_x_text(curves, x)}: no number", why),
        )
        for x, why in curve.gaps
    )
    reasons = (
        Words(
            x=x,
            y=y.low,
            lines=(cut(why, _WHY_ROOM),),
            side="right",
            shift=(-_BESIDE_PX, _BESIDE_PX),
            above=True,
            colour=FAINT,
        )
        for x, why in curve.gaps
        if named[x] is curve and curve.gap_words
    )
    return (*crosses, *reasons)


def _tooltip(curves: LineChart, series: str, point: Point) -> Texts:
    return lines(
        f"{point.label or series}, {_x_text(curves, point.x)}",
        value_words(point.y, SHOWN[curves.y.unit]),
        *point.details,
    )


def _x_text(curves: LineChart, x: float) -> str:
    if curves.names:
        return curves.names[int(x)]
    if curves.x.unit is Unit.YEAR:
        return f"{curves.x.label} {SHOWN[Unit.YEAR](x)}"
    return f"{curves.x.label} {SHOWN[curves.x.unit](x) if x != int(x) else f'{x:,.0f}'}"


def _straight(line: Line) -> Path:
    return Path(points=line.points, colour=INK, width_px=1.5)


def _dots(plane: ScatterPlot, group: PointGroup, names: Sequence[PointName]) -> tuple[Mark, ...]:
    series = group.series
    dots = (Dot.of(series, point.x, point.y.middle, _of_point(plane, point, series.name)) for point in group.points)
    words = (point_words(name, series.colour) for name in names if name.series is series)
    return (*_intervals(group.points, series.colour, 0.0), *dots, *words)


def _of_point(plane: ScatterPlot, point: Point, part: str) -> Texts:
    rate = value_words(point.y, SHOWN[plane.y.unit])
    return lines(f"{point.label}, {part}", rate, SHOWN[plane.x.unit](point.x), *point.details)
