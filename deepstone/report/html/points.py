"""Line charts and scatter plots for plotly: points and lines between two axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

from deepstone.report.figure import Line, LineChart, Point, PointGroup, ScatterPlot, Unit
from deepstone.report.html.plot import (
    Plot,
    PlotlyObject,
    axis,
    inert,
    keys,
    lines,
    note,
    point_note,
    scatter,
    whiskers,
)
from deepstone.report.labels import Sizes, line_names, point_names, scatter_names
from deepstone.report.scales import Scale, has_band, line_scales, scatter_scales
from deepstone.report.wording import SHOWN, cut, value_words
from deepstone.units import count, digits

_LINES_PX: Final = 360
_SCATTER_PX: Final = 460
_LINES_MARGIN: Final = {"t": 14, "b": 48, "l": 66, "r": 14}
_SCATTER_MARGIN: Final = {"t": 8, "b": 44, "l": 62, "r": 10}
_WHY_ROOM: Final = 20
# Names are placed for the narrowest window that shows them; a wider one has more room.
_LINES_NAMES: Final = Sizes(width=600.0, height=_LINES_PX - 62.0, letter=6.2, line=14.0)
_SCATTER_NAMES: Final = Sizes(width=560.0, height=_SCATTER_PX - 60.0, letter=6.2, line=14.0)


def lines_plot(curves: LineChart) -> Plot:
    x, y = scales = line_scales(curves)
    named = {at: curve for curve in reversed(curves.curves) for at, _ in curve.gaps}  # one name where several are
    traces = [_traces(curves, curve, y, named) for curve in curves.curves]
    starts = list(accumulate(map(len, traces), initial=0))
    return Plot(
        title=curves.title,
        traces=tuple(trace for several in traces for trace in several),
        layout={
            "margin": _LINES_MARGIN,
            "xaxis": {"type": "log" if x.log else "linear", "showgrid": False, "showline": True, "tickangle": 0},
            "yaxis": axis(y),
            "annotations": [],
        },
        keys=keys(curves, lambda place: range(starts[place], starts[place + 1])),
        height_px=_LINES_PX,
        across=x,
        wide_only=tuple(point_note(scales, name) for name in point_names(curves, scales, _LINES_NAMES)),
    )


def scatter_plot(plane: ScatterPlot) -> Plot:
    x, y = scales = scatter_scales(plane)
    drawn = [_straight(line) for line in plane.lines]
    names = scatter_names(plane, scales, _SCATTER_NAMES)
    return Plot(
        title=plane.title,
        traces=(*drawn, *(_group(group) for group in plane.groups)),
        layout={
            "margin": _SCATTER_MARGIN,
            "xaxis": axis(x),
            "yaxis": axis(y),
            "annotations": [
                {
                    **note(scales, name.end, name.line.label, name.side),
                    "yshift": name.lines_up * _SCATTER_NAMES.line,
                }
                for name in line_names(plane, x)
            ],
        },
        keys=keys(plane, lambda place: (len(drawn) + place,)),
        height_px=_SCATTER_PX,
        wide_only=tuple(
            {**point_note(scales, name), "font": {"size": 11, "color": name.series.colour}} for name in names
        ),
    )


def _traces(curves: LineChart, curve: PointGroup, y: Scale, named: Mapping[float, PointGroup]) -> list[PlotlyObject]:
    """Its band, itself, its gaps, and what its line leads past, if anything."""
    found = [_band(curve, y.low), _line(curves, curve, y.low, apart=False), _gaps(curves, curve, y, named)]
    return [*found, *([_line(curves, curve, y.low, apart=True)] if any(point.apart for point in curve.points) else [])]


def _band(curve: PointGroup, least: float) -> PlotlyObject:
    """Around the curve and back again; empty where whiskers do it."""
    known = [(point.x, point.y.low, point.y.high) for point in curve.points if has_band(len(curve.points))]
    spans = [(x, max(least, low), high) for x, low, high in known if low is not None and high is not None]
    x = [x for x, _, _ in spans] + [x for x, _, _ in reversed(spans)]
    y = [high for _, _, high in spans] + [low for _, low, _ in reversed(spans)]
    return scatter(x, y, "lines", None, fill="toself", fillcolor=_faded(curve.series.colour), line={"width": 0})


def _faded(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.2)"


def _line(curves: LineChart, curve: PointGroup, least: float, *, apart: bool) -> PlotlyObject:
    series = curve.series
    points = [point for point in curve.points if point.apart == apart]
    bare = has_band(len(curve.points)) or all(point.y.low is None for point in points)
    trace = scatter(
        [point.x for point in points],
        [point.y.middle for point in points],
        "markers+text" if apart else "lines+markers+text",
        [_told(curves, series.name, point) for point in points],
        name=inert(series.name),
        text=["†" if point.doubtful else "" for point in points],
        textposition=["top left" if point.label else "top right" for point in points],
        marker={
            "color": series.colour,
            "symbol": f"{series.marker}-open" if series.published else series.marker,
            "size": 8,
            "line": {"width": 1.5, "color": series.colour},
        },
        line={"color": series.colour, "width": 2, "dash": "dash" if series.published else "solid"},
        cliponaxis=False,
    )
    return trace if bare else {**trace, "error_y": _intervals(points, series.colour, least, thickness=1.2, width=3)}


def _intervals(points: Sequence[Point], colour: str, least: float, **style: float) -> PlotlyObject:
    """None reaches below the least that the axis can show."""
    ends = [
        (0.0, 0.0)
        if point.y.low is None or point.y.high is None
        else (point.y.middle - max(least, point.y.low), point.y.high - point.y.middle)
        for point in points
    ]
    return whiskers([below for below, _ in ends], [above for _, above in ends], color=colour, **style)


def _gaps(curves: LineChart, curve: PointGroup, y: Scale, named: Mapping[float, PointGroup]) -> PlotlyObject:
    """At the foot of the axis, with the beginning of the reason; all of it for who points there."""
    return scatter(
        [x for x, _ in curve.gaps],
        [y.low] * len(curve.gaps),
        "markers+text",
        [lines(curve.series.name, f"{_x_told(curves, x)}: no number", why) for x, why in curve.gaps],
        meta="gap",
        text=[inert(cut(why, _WHY_ROOM)) if named[x] is curve else "" for x, why in curve.gaps],
        textposition="top left",
        textfont={"size": 11},
        marker={"symbol": "x", "size": 9, "color": curve.series.colour},
        cliponaxis=False,
    )


def _told(curves: LineChart, series: str, point: Point) -> str:
    return lines(
        f"{point.label or series}, {_x_told(curves, point.x)}",
        value_words(point.y, SHOWN[curves.y.unit]),
        *point.details,
    )


def _x_told(curves: LineChart, x: float) -> str:
    if curves.names:
        return curves.names[int(x)]
    if curves.x.unit is Unit.YEAR:
        return f"{curves.x.label} {SHOWN[Unit.YEAR](x)}"
    return f"{curves.x.label} {SHOWN[curves.x.unit](x) if x != int(x) else f'{x:,.0f}'}"


def _straight(line: Line) -> PlotlyObject:
    x, y = [x for x, _ in line.points], [y for _, y in line.points]
    return scatter(x, y, "lines", [inert(line.label)] * len(line.points), meta="ink", line={"width": 1.5})


def _group(group: PointGroup) -> PlotlyObject:
    series = group.series
    return scatter(
        [point.x for point in group.points],
        [point.y.middle for point in group.points],
        "markers",
        [_of_layer(point, series.name) for point in group.points],
        name=inert(series.name),
        marker={"color": series.colour, "symbol": series.marker, "size": 8},
        error_y=_intervals(group.points, series.colour, 0.0, thickness=1, width=0),
    )


def _of_layer(point: Point, part: str) -> str:
    rate = value_words(point.y, lambda value: count(value, "FLOP/s"))
    return lines(f"{point.label}, {part}", rate, f"{digits(point.x)} FLOP/byte")
