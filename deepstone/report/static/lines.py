"""Line charts by matplotlib."""

from __future__ import annotations

from typing import Final

from matplotlib.axes import Axes

from deepstone.report.figure import Curve, LineChart
from deepstone.report.labels import Sizes, point_names
from deepstone.report.scales import Scale, has_band, line_scales, titled
from deepstone.report.static.sheet import (
    FAINT_INK,
    GRID,
    INK,
    LEGEND_LINE_IN,
    LETTER,
    Entry,
    Sheet,
    draw_legend,
    legend_lines,
)
from deepstone.report.wording import cut, wrapped_name

_TITLE_IN: Final = 0.27
_PLOT_IN: Final = 3.6
_AXIS_IN: Final = 0.62
_Y_LABELS_IN: Final = 0.8
_SIZE: Final = 8.0
_GAP_ROOM: Final = 40
_NAME_ROOM: Final = 16
_NAME_SIZE: Final = 7.0


def lines_width_in(curves: LineChart) -> float:
    del curves
    return 10.0


def lines_height_in(curves: LineChart, width_in: float) -> float:
    return _TITLE_IN + _legend_in(curves, width_in) + _PLOT_IN + _AXIS_IN


def draw_lines(sheet: Sheet, curves: LineChart, top_in: float, left_in: float, width_in: float) -> None:
    sheet.text(left_in, top_in, curves.title, size=10, weight="bold")
    draw_legend(sheet, left_in, top_in + _TITLE_IN, legend_lines(_entries(curves), width_in))
    top = top_in + _TITLE_IN + _legend_in(curves, width_in)
    axes = sheet.axes(left_in + _Y_LABELS_IN, top, width_in - _Y_LABELS_IN, _PLOT_IN)
    x, y = line_scales(curves)
    _draw_frame(axes, curves, x, y)
    for curve in curves.curves:
        _draw_curve(axes, curve, least=y.low)
    _draw_gaps(axes, curves)
    _draw_names(axes, curves, x, y, width_in - _Y_LABELS_IN)


def _entries(curves: LineChart) -> list[Entry]:
    return [
        Entry(
            name=curve.series.name,
            colour=curve.series.colour,
            marker=_marker(curve),
            hollow=curve.series.published,
            line=_line(curve),
        )
        for curve in curves.curves
    ]


def _marker(curve: Curve) -> str:
    return "D" if curve.series.published else "o"


def _line(curve: Curve) -> str:
    return "--" if curve.series.published else "-"


def _legend_in(curves: LineChart, width_in: float) -> float:
    return len(legend_lines(_entries(curves), width_in)) * LEGEND_LINE_IN + 0.08


def _draw_frame(axes: Axes, curves: LineChart, x: Scale, y: Scale) -> None:
    axes.set_xscale("log" if curves.x.log else "linear")
    axes.set_yscale("log" if curves.y.log else "linear")
    axes.set(xlim=(x.low, x.high), ylim=(y.low, y.high))
    texts = ["\n".join(wrapped_name(tick.text, _NAME_ROOM)) for tick in x.ticks]
    axes.set_xticks([tick.at for tick in x.ticks], labels=texts, fontsize=_SIZE)
    axes.set_yticks([tick.at for tick in y.ticks], labels=[tick.text for tick in y.ticks], fontsize=_SIZE)
    axes.minorticks_off()
    axes.set_xlabel(titled(curves.x.label, x.unit), fontsize=_SIZE, color=FAINT_INK)
    axes.set_ylabel(titled(curves.y.label, y.unit), fontsize=_SIZE, color=FAINT_INK)
    axes.tick_params(axis="both", length=0, colors=FAINT_INK)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(FAINT_INK)


def _draw_curve(axes: Axes, curve: Curve, *, least: float) -> None:
    colour = curve.series.colour
    for apart, line in ((False, _line(curve)), (True, "none")):
        points = [point for point in curve.points if point.apart == apart]
        axes.plot(
            [point.x for point in points],
            [point.y.middle for point in points],
            _marker(curve),
            linestyle=line,
            color=colour,
            markerfacecolor="white" if curve.series.published else colour,
            markersize=5,
            linewidth=1.6,
            zorder=4,
        )
    known = [(point.x, point.y.low, point.y.high) for point in curve.points]
    spans = [(x, max(least, low), high) for x, low, high in known if low is not None and high is not None]
    if has_band(len(curve.points)):
        xs, lows, highs = ([span[at] for span in spans] for at in range(3))
        axes.fill_between(xs, lows, highs, color=colour, alpha=0.18, linewidth=0, zorder=2)
    else:
        for x, low, high in spans:
            axes.plot([x, x], [low, high], "_-", color=colour, linewidth=1, markersize=4, zorder=3)
    for point in curve.points:
        if point.doubtful and not point.label:
            axes.annotate(
                "†", (point.x, point.y.middle), (4, 3), textcoords="offset points", fontsize=_SIZE, color=INK, zorder=5
            )


def _draw_names(axes: Axes, curves: LineChart, x: Scale, y: Scale, width_in: float) -> None:
    sizes = Sizes(
        width=width_in * 72, height=_PLOT_IN * 72, letter=_NAME_SIZE * LETTER * 72, line=_NAME_SIZE * 1.25
    )  # in points, which is what offsets are given in
    for name in point_names(curves, x, y, sizes):
        axes.annotate(
            name.text,
            (name.point.x, name.point.y.middle),
            (name.pin.x - name.place[0], name.pin.low - name.place[1]),
            textcoords="offset points",
            fontsize=_NAME_SIZE,
            color=INK,
            ha=name.pin.side,
            va="bottom",
            arrowprops={"arrowstyle": "-", "color": FAINT_INK, "linewidth": 0.5} if name.led else None,
            zorder=6,
        )


def _draw_gaps(axes: Axes, curves: LineChart) -> None:
    """At the foot of the axis, those at one place one above another."""
    stacked: dict[float, int] = {}
    for curve in curves.curves:
        for gap in curve.gaps:
            up = stacked.get(gap.x, 0)
            stacked[gap.x] = up + 1
            place = (gap.x, 0.03 + 0.055 * up)
            axes.plot(
                *place, "x", transform=axes.get_xaxis_transform(), color=curve.series.colour, markersize=6, zorder=5
            )
            right = axes.transAxes.inverted().transform(axes.transData.transform((gap.x, 1)))[0] > 0.6
            axes.annotate(
                cut(gap.why, _GAP_ROOM),
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
