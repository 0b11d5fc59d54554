"""Scatter plots for plotly: points and lines between two axes."""

from __future__ import annotations

import math
from typing import Any, Final

from deepstone.report.figure import Axis, Line, Point, PointGroup, ScatterPlot
from deepstone.report.html.plot import Key, Plot, Trace, inert, lines
from deepstone.report.labels import Box, LineName, anchor, label_spots, line_names
from deepstone.report.scales import Scale, scatter_scales
from deepstone.report.wording import shortened, value_words
from deepstone.units import count, digits

_HEIGHT_PX: Final = 460
_MARGIN: Final = {"t": 8, "b": 44, "l": 62, "r": 10}
_LEAST_PX: Final = 640.0  # the width that names are placed for; in a wider window they have more room
_LETTER_PX: Final = 6.2
_LINE_PX: Final = 14.0
_LABEL_ROOM: Final = 24
_LABELS_AT_MOST: Final = 40


def scatter_plot(plane: ScatterPlot) -> Plot:
    x, y = scatter_scales(plane)
    drawn = [_line(line) for line in plane.lines]
    return Plot(
        title=plane.title,
        traces=(*drawn, *(_group(group) for group in plane.groups)),
        layout={
            "margin": _MARGIN,
            "xaxis": _axis(plane.x, x),
            "yaxis": _axis(plane.y, y),
            "annotations": [_line_name(name, plane) for name in line_names(plane, x)],
        },
        keys=tuple(
            Key(name=group.series.name, colour=group.series.colour, traces=(len(drawn) + at,), marker=group.marker)
            for at, group in enumerate(plane.groups)
        ),
        height_px=_HEIGHT_PX,
        wide_only=tuple(_names(plane, x, y)),
    )


def _axis(axis: Axis, scale: Scale) -> dict[str, Any]:
    return {
        "type": "log" if axis.log else "linear",
        "range": [_place(axis, scale.low), _place(axis, scale.high)],
        "tickvals": [tick.at for tick in scale.ticks],
        "ticktext": [inert(tick.text) for tick in scale.ticks],
        "title": {"text": inert(f"{axis.label} in {scale.unit}"), "standoff": 8, "font": {"size": 12}},
    }


def _place(axis: Axis, value: float) -> float:
    """As ranges and notes of plotly's want it, which on a logarithmic axis is the logarithm."""
    return math.log10(value) if axis.log else value


def _line(line: Line) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "meta": "ink",
        "x": [x for x, _ in line.points],
        "y": [y for _, y in line.points],
        "line": {"width": 1.5},
        "hoverinfo": "text",
        "hovertext": [inert(line.label)] * len(line.points),
    }


def _line_name(name: LineName, plane: ScatterPlot) -> dict[str, Any]:
    return {
        "x": _place(plane.x, name.x),
        "y": _place(plane.y, name.y),
        "text": inert(name.line.label),
        "showarrow": False,
        "xanchor": name.side,
        "yanchor": "bottom",
        "yshift": name.lines_up * _LINE_PX,
        "font": {"size": 11},
    }


def _group(group: PointGroup) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": inert(group.series.name),
        "x": [point.x for point in group.points],
        "y": [point.y.middle for point in group.points],
        "marker": {"color": group.series.colour, "symbol": group.marker, "size": 8},
        "hovertext": [_told(point, group.series.name) for point in group.points],
        "hoverinfo": "text",
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [(point.y.high or point.y.middle) - point.y.middle for point in group.points],
            "arrayminus": [point.y.middle - (point.y.low or point.y.middle) for point in group.points],
            "thickness": 1,
            "width": 0,
            "color": group.series.colour,
        },
    }


def _told(point: Point, part: str) -> str:
    rate = value_words(point.y, lambda value: count(value, "FLOP/s"))
    return lines(f"{point.label}, {part}", rate, f"{digits(point.x)} FLOP/byte")


def _names(plane: ScatterPlot, x: Scale, y: Scale) -> list[dict[str, Any]]:
    """Of as many points as there is room for."""
    pairs = [(point, group.series.colour) for group in plane.groups for point in group.points]
    pairs.sort(key=lambda pair: (-pair[0].weight, pair[0].label))
    width, height = _LEAST_PX - 80, _HEIGHT_PX - 60.0
    places = [(_share(plane.x, x, point.x) * width, _share(plane.y, y, point.y.middle) * height) for point, _ in pairs]
    texts = [shortened(point.label, _LABEL_ROOM) for point, _ in pairs]
    sizes = [(len(text) * _LETTER_PX, _LINE_PX) for text in texts]
    taken = [_taken(name, plane, x, y, width, height) for name in line_names(plane, x)]
    spots = label_spots(places, sizes[:_LABELS_AT_MOST], bounds=Box(0, 0, width, height), taken=taken)
    found = zip(pairs, places, texts, spots, strict=False)
    return [_name(plane, point, place, text, colour, spot) for (point, colour), place, text, spot in found if spot]


def _name(
    plane: ScatterPlot, point: Point, place: tuple[float, float], text: str, colour: str, spot: Box
) -> dict[str, Any]:
    pin = anchor(spot, place[0])
    return {
        "x": _place(plane.x, point.x),
        "y": _place(plane.y, point.y.middle),
        "text": inert(text),
        "showarrow": False,
        "xanchor": pin.side,
        "yanchor": "bottom",
        "xshift": pin.x - place[0],
        "yshift": pin.low - place[1],
        "font": {"size": 11, "color": colour},
    }


def _share(axis: Axis, scale: Scale, value: float) -> float:
    """How far along its axis a value lies, from 0 to 1."""
    low, high = _place(axis, scale.low), _place(axis, scale.high)
    return (_place(axis, value) - low) / (high - low)


def _taken(name: LineName, plane: ScatterPlot, x: Scale, y: Scale, width: float, height: float) -> Box:
    end, low = _share(plane.x, x, name.x) * width, _share(plane.y, y, name.y) * height + name.lines_up * _LINE_PX
    needed = len(name.line.label) * _LETTER_PX
    left = end - needed if name.side == "right" else end
    return Box(left, low, left + needed, low + _LINE_PX)
