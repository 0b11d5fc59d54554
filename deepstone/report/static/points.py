"""Line charts and scatter plots by matplotlib: points and lines between two axes."""

from __future__ import annotations

from typing import Final

from matplotlib.axes import Axes

from deepstone.report.labels import line_names, point_names, scatter_names
from deepstone.report.panels import LineChart, PointGroup, ScatterPlot
from deepstone.report.scales import Scale, has_band, line_scales, scatter_scales
from deepstone.report.static.sheet import (
    FAINT_INK,
    INK,
    LINES,
    MARKERS,
    NAME_SIZE,
    SIZE,
    Sheet,
    draw_frame,
    draw_names,
    name_sizes,
)
from deepstone.report.wording import cut

_LINES_IN: Final = 3.6
_SCATTER_IN: Final = 4.8
LINES_HEIGHT_IN: Final = _LINES_IN + 0.62  # with the axis
SCATTER_HEIGHT_IN: Final = _SCATTER_IN + 0.5
_Y_LABELS_IN: Final = 0.8
_GAP_ROOM: Final = 40
_TICK_ROOM: Final = 16


def draw_lines(sheet: Sheet, curves: LineChart, top_in: float, left_in: float, width_in: float) -> None:
    inner_in = width_in - _Y_LABELS_IN
    axes = sheet.axes(left_in + _Y_LABELS_IN, top_in, inner_in, _LINES_IN)
    scales = line_scales(curves)
    draw_frame(axes, *scales, grid="y", room=_TICK_ROOM)
    for curve in curves.curves:
        _draw_curve(axes, curve, scales[1])
    _draw_gaps(axes, curves)
    draw_names(axes, point_names(curves, scales, name_sizes(inner_in, _LINES_IN)), coloured=False)


def draw_scatter(sheet: Sheet, plane: ScatterPlot, top_in: float, left_in: float, width_in: float) -> None:
    inner_in = width_in - _Y_LABELS_IN
    axes = sheet.axes(left_in + _Y_LABELS_IN, top_in, inner_in, _SCATTER_IN)
    scales = scatter_scales(plane)
    draw_frame(axes, *scales, grid="both")
    _draw_named_lines(axes, plane, scales[0])
    for group in plane.groups:
        _draw_group(axes, group)
    draw_names(axes, scatter_names(plane, scales, name_sizes(inner_in, _SCATTER_IN)), coloured=True)


def _draw_curve(axes: Axes, curve: PointGroup, y: Scale) -> None:
    colour = curve.series.colour
    for apart, line in ((False, LINES[curve.series.published]), (True, "none")):
        points = [point for point in curve.points if point.apart == apart]
        axes.plot(
            [point.x for point in points],
            [point.y.middle for point in points],
            MARKERS[curve.series.marker],
            linestyle=line,
            color=colour,
            markerfacecolor="white" if curve.series.published else colour,
            markersize=5,
            linewidth=1.6,
            zorder=4,
        )
    known = [(point.x, point.y.low, point.y.high) for point in curve.points]
    spans = [(x, max(y.low, low), min(y.high, high)) for x, low, high in known if low is not None and high is not None]
    if has_band(len(curve.points)):
        xs, lows, highs = ([span[at] for span in spans] for at in range(3))
        axes.fill_between(xs, lows, highs, color=colour, alpha=0.18, linewidth=0, zorder=2)
    else:
        for x, low, high in spans:
            axes.plot([x, x], [low, high], "_-", color=colour, linewidth=1, markersize=4, zorder=3)
    for point in curve.points:
        if point.doubtful and not point.label:
            axes.annotate(
                "†", (point.x, point.y.middle), (4, 3), textcoords="offset points", fontsize=SIZE, color=INK, zorder=5
            )


def _draw_gaps(axes: Axes, curves: LineChart) -> None:
    """Draw the gaps at the lower end of the axis, stacked at each place."""
    stacked: dict[float, int] = {}
    for curve in curves.curves:
        for x, why in curve.gaps:
            up = stacked.get(x, 0)
            stacked[x] = up + 1
            place = (x, 0.03 + 0.055 * up)
            axes.plot(
                *place, "x", transform=axes.get_xaxis_transform(), color=curve.series.colour, markersize=6, zorder=5
            )
            if not curve.gap_words:
                continue
            right = axes.transAxes.inverted().transform(axes.transData.transform((x, 1)))[0] > 0.6
            axes.annotate(
                cut(why, _GAP_ROOM),
                place,
                (-6 if right else 6, 0),
                xycoords=axes.get_xaxis_transform(),
                textcoords="offset points",
                fontsize=7,
                color=FAINT_INK,
                style="italic",
                va="center",
                ha="right" if right else "left",
            )


def _draw_named_lines(axes: Axes, plane: ScatterPlot, x: Scale) -> None:
    for name in line_names(plane, x):
        axes.plot(*zip(*name.line.points, strict=True), color=INK, linewidth=1.2, zorder=2)
        axes.annotate(
            name.line.label,
            name.end,
            (-2 if name.side == "right" else 0, 3 + name.lines_up * NAME_SIZE * 1.25),
            textcoords="offset points",
            fontsize=NAME_SIZE,
            color=INK,
            ha=name.side,
            va="bottom",
        )


def _draw_group(axes: Axes, group: PointGroup) -> None:
    for point in group.points:
        if point.y.low is not None and point.y.high is not None:
            axes.plot([point.x, point.x], [point.y.low, point.y.high], color=group.series.colour, linewidth=1, zorder=3)
    axes.plot(
        [point.x for point in group.points],
        [point.y.middle for point in group.points],
        MARKERS[group.series.marker],
        color=group.series.colour,
        markersize=5,
        markeredgecolor="white",
        markeredgewidth=0.5,
        zorder=4,
    )
