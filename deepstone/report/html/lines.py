"""Line charts for plotly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from deepstone.report.figure import Axis, Curve, CurvePoint, LineChart, Unit
from deepstone.report.html.plot import Key, Plot, Ruler, Trace, inert, lines
from deepstone.report.labels import Sizes, point_names
from deepstone.report.scales import Scale, has_band, line_scales, titled
from deepstone.report.wording import SHOWN, cut, shortened, value_words

_HEIGHT_PX: Final = 360
_MARGIN: Final = {"t": 14, "b": 48, "l": 66, "r": 14}
_NAME_ROOM: Final = 22
_WHY_ROOM: Final = 20
# Names are placed for the narrowest window that shows them; a wider one has more room.
_NAMES: Final = Sizes(width=600.0, height=_HEIGHT_PX - 62.0, letter=6.2, line=14.0)


def lines_plot(curves: LineChart) -> Plot:
    x, y = line_scales(curves)
    named = {gap.x: curve for curve in reversed(curves.curves) for gap in curve.gaps}  # one name where several are
    traces = [_traces(curves, curve, y, named) for curve in curves.curves]
    ends = list(accumulate(map(len, traces)))
    return Plot(
        title=curves.title,
        traces=tuple(trace for several in traces for trace in several),
        layout={
            "margin": _MARGIN,
            "xaxis": {"type": _type(curves.x), "showgrid": False, "showline": True, "tickangle": 0},
            "yaxis": _y_axis(curves.y, y),
            "annotations": [],
        },
        keys=tuple(
            Key(
                name=curve.series.name,
                colour=curve.series.colour,
                traces=tuple(range(end - len(several), end)),
                frame=curve.series.published,
                marker=_symbol(curve),
            )
            for curve, several, end in zip(curves.curves, traces, ends, strict=True)
        ),
        height_px=_HEIGHT_PX,
        ruler=Ruler(
            low=x.low,
            high=x.high,
            at=tuple(tick.at for tick in x.ticks),
            texts=tuple(inert(shortened(tick.text, _NAME_ROOM)) for tick in x.ticks),
            title=inert(titled(curves.x.label, x.unit)),
            log=curves.x.log,
            room=False,
        ),
        wide_only=tuple(_names(curves, x, y)),
    )


def _traces(curves: LineChart, curve: Curve, y: Scale, named: Mapping[float, Curve]) -> list[Trace]:
    """Its band, itself, its gaps, and what its line leads past, if anything."""
    found = [_band(curve, y.low), _line(curves, curve, y.low, apart=False), _gaps(curves, curve, y, named)]
    return [*found, *([_line(curves, curve, y.low, apart=True)] if any(point.apart for point in curve.points) else [])]


def _type(axis: Axis) -> str:
    return "log" if axis.log else "linear"


def _y_axis(axis: Axis, scale: Scale) -> dict[str, Any]:
    ends = [math.log10(end) if axis.log else end for end in (scale.low, scale.high)]
    return {
        "type": _type(axis),
        "range": ends,
        "tickvals": [tick.at for tick in scale.ticks],
        "ticktext": [inert(tick.text) for tick in scale.ticks],
        "title": {"text": inert(titled(axis.label, scale.unit)), "standoff": 8, "font": {"size": 12}},
    }


def _symbol(curve: Curve) -> str:
    return "diamond" if curve.series.published else "circle"


def _spans(points: Sequence[CurvePoint], least: float) -> list[tuple[float, float, float]]:
    known = [(point.x, point.y.low, point.y.high) for point in points]
    return [(x, max(least, low), high) for x, low, high in known if low is not None and high is not None]


def _band(curve: Curve, least: float) -> Trace:
    """Around the curve and back again; empty where whiskers do it."""
    spans = _spans(curve.points, least) if has_band(len(curve.points)) else []
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [x for x, _, _ in spans] + [x for x, _, _ in reversed(spans)],
        "y": [high for _, _, high in spans] + [low for _, low, _ in reversed(spans)],
        "fill": "toself",
        "fillcolor": _faded(curve.series.colour),
        "line": {"width": 0},
        "hoverinfo": "skip",
    }


def _faded(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.2)"


def _names(curves: LineChart, x: Scale, y: Scale) -> Iterator[dict[str, Any]]:
    for name in point_names(curves, x, y, _NAMES):
        yield {
            "x": math.log10(name.point.x) if curves.x.log else name.point.x,
            "y": math.log10(name.point.y.middle) if curves.y.log else name.point.y.middle,
            "text": inert(name.label),
            "showarrow": False,
            "xanchor": name.pin.side,
            "yanchor": "bottom",
            "xshift": name.pin.x - name.place[0],
            "yshift": name.pin.low - name.place[1],
            "font": {"size": 11},
        }


def _line(curves: LineChart, curve: Curve, least: float, *, apart: bool) -> Trace:
    series = curve.series
    points = [point for point in curve.points if point.apart == apart]
    whiskers = _whiskers(curve, points, least)
    return {
        "type": "scatter",
        "mode": "markers+text" if apart else "lines+markers+text",
        "name": inert(series.name),
        "x": [point.x for point in points],
        "y": [point.y.middle for point in points],
        "text": ["†" if point.doubtful else "" for point in points],
        "textposition": ["top left" if point.label else "top right" for point in points],
        "marker": {
            "color": series.colour,
            "symbol": _symbol(curve) + ("-open" if series.published else ""),
            "size": 8,
            "line": {"width": 1.5, "color": series.colour},
        },
        "line": {"color": series.colour, "width": 2, "dash": "dash" if series.published else "solid"},
        "hovertext": [_told(curves, curve, point) for point in points],
        "hoverinfo": "text",
        "cliponaxis": False,
        **({"error_y": whiskers} if whiskers else {}),
    }


def _whiskers(curve: Curve, points: Sequence[CurvePoint], least: float) -> dict[str, Any] | None:
    if has_band(len(curve.points)) or not _spans(points, least):
        return None
    return {
        "type": "data",
        "symmetric": False,
        "array": [_length(point.y.middle, point.y.high) for point in points],
        "arrayminus": [_length(_not_below(least, point.y.low), point.y.middle) for point in points],
        "thickness": 1.2,
        "width": 3,
        "color": curve.series.colour,
    }


def _not_below(least: float, low: float | None) -> float | None:
    return None if low is None else max(least, low)


def _length(low: float | None, high: float | None) -> float:
    return 0.0 if low is None or high is None else high - low


def _gaps(curves: LineChart, curve: Curve, y: Scale, named: Mapping[float, Curve]) -> Trace:
    """At the foot of the axis, with the beginning of the reason; all of it for who points there."""
    texts = [cut(gap.why, _WHY_ROOM) if named[gap.x] is curve else "" for gap in curve.gaps]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "meta": "gap",
        "text": [inert(text) for text in texts],
        "textposition": "top left",
        "textfont": {"size": 11},
        "x": [gap.x for gap in curve.gaps],
        "y": [y.low] * len(curve.gaps),
        "marker": {"symbol": "x", "size": 9, "color": curve.series.colour},
        "hovertext": [lines(curve.series.name, f"{_x_told(curves, gap.x)}: no number", gap.why) for gap in curve.gaps],
        "hoverinfo": "text",
        "cliponaxis": False,
    }


def _told(curves: LineChart, curve: Curve, point: CurvePoint) -> str:
    return lines(
        f"{point.label or curve.series.name}, {_x_told(curves, point.x)}",
        value_words(point.y, SHOWN[curves.y.unit]),
        *point.details,
    )


def _x_told(curves: LineChart, x: float) -> str:
    if curves.names:
        return curves.names[int(x)]
    if curves.x.unit is Unit.YEAR:
        return f"{curves.x.label} {SHOWN[Unit.YEAR](x)}"
    return f"{curves.x.label} {SHOWN[curves.x.unit](x) if x != int(x) else f'{x:,.0f}'}"
