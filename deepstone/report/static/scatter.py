"""Scatter plots by matplotlib: points and lines between two axes."""

from __future__ import annotations

from typing import Final

from matplotlib.axes import Axes

from deepstone.report.figure import Axis, Point, ScatterPlot
from deepstone.report.labels import Box, anchor, label_spots, line_names
from deepstone.report.scales import scatter_scales
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
from deepstone.report.wording import shortened

_TITLE_IN: Final = 0.27
_LEGEND_IN: Final = LEGEND_LINE_IN + 0.05
_PLOT_IN: Final = 4.8
_AXIS_IN: Final = 0.5
_Y_LABELS_IN: Final = 0.75
_SIZE: Final = 8.0
_LABEL_SIZE: Final = 7.0
_LABEL_ROOM: Final = 24
_LABELS_AT_MOST: Final = 60
_MARKERS: Final = {"circle": "o", "diamond": "D"}


def scatter_width_in(plane: ScatterPlot) -> float:
    del plane
    return 10.0


def scatter_height_in(plane: ScatterPlot, width_in: float) -> float:
    del plane, width_in
    return _TITLE_IN + _LEGEND_IN + _PLOT_IN + _AXIS_IN


def draw_scatter(sheet: Sheet, plane: ScatterPlot, top_in: float, left_in: float, width_in: float) -> None:
    sheet.text(left_in, top_in, plane.title, size=10, weight="bold")
    entries = [
        Entry(name=group.series.name, colour=group.series.colour, marker=_MARKERS[group.marker])
        for group in plane.groups
    ]
    draw_legend(sheet, left_in, top_in + _TITLE_IN, legend_lines(entries, width_in))
    axes = sheet.axes(left_in + _Y_LABELS_IN, top_in + _TITLE_IN + _LEGEND_IN, width_in - _Y_LABELS_IN, _PLOT_IN)
    _draw_frame(axes, plane)
    taken = _draw_lines(axes, plane)
    _draw_groups(axes, plane)
    _draw_labels(axes, plane, taken)


def _draw_frame(axes: Axes, plane: ScatterPlot) -> None:
    x, y = scatter_scales(plane)
    axes.set(xscale=_kind(plane.x), xlim=(x.low, x.high), yscale=_kind(plane.y), ylim=(y.low, y.high))
    axes.set_xticks([tick.at for tick in x.ticks], labels=[tick.text for tick in x.ticks], fontsize=_SIZE)
    axes.set_yticks([tick.at for tick in y.ticks], labels=[tick.text for tick in y.ticks], fontsize=_SIZE)
    axes.set_xlabel(f"{plane.x.label} in {x.unit}", fontsize=_SIZE, color=FAINT_INK)
    axes.set_ylabel(f"{plane.y.label} in {y.unit}", fontsize=_SIZE, color=FAINT_INK)
    axes.minorticks_off()
    axes.tick_params(axis="both", length=0, colors=FAINT_INK)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(FAINT_INK)


def _kind(axis: Axis) -> str:
    return "log" if axis.log else "linear"


def _draw_lines(axes: Axes, plane: ScatterPlot) -> list[Box]:
    """With their names; the boxes that those take."""
    taken: list[Box] = []
    per_in = axes.figure.dpi
    line_px = _LABEL_SIZE / 72 * per_in * 1.4
    for name in line_names(plane, scatter_scales(plane)[0]):
        axes.plot(*zip(*name.line.points, strict=True), color=INK, linewidth=1.2, zorder=2)
        up_px = name.lines_up * line_px
        axes.annotate(
            name.line.label,
            (name.x, name.y),
            (-2 if name.side == "right" else 0, 3 + up_px * 72 / per_in),
            textcoords="offset points",
            fontsize=_LABEL_SIZE,
            color=INK,
            ha=name.side,
            va="bottom",
        )
        x, y = axes.transData.transform((name.x, name.y))
        width = len(name.line.label) * _LABEL_SIZE * LETTER * per_in
        left = x - width if name.side == "right" else x
        taken.append(Box(left, y + up_px, left + width, y + up_px + line_px))
    return taken


def _draw_groups(axes: Axes, plane: ScatterPlot) -> None:
    for group in plane.groups:
        for point in group.points:
            if point.y.low is not None and point.y.high is not None:
                axes.plot(
                    [point.x, point.x], [point.y.low, point.y.high], color=group.series.colour, linewidth=1, zorder=3
                )
        axes.plot(
            [point.x for point in group.points],
            [point.y.middle for point in group.points],
            _MARKERS[group.marker],
            color=group.series.colour,
            markersize=5,
            markeredgecolor="white",
            markeredgewidth=0.5,
            zorder=4,
        )


def _draw_labels(axes: Axes, plane: ScatterPlot, taken: list[Box]) -> None:
    """As many as there is room for, in the colour of their point."""
    pairs = [(point, group.series.colour) for group in plane.groups for point in group.points]
    pairs.sort(key=lambda pair: (-pair[0].weight, pair[0].label))
    per_in = axes.figure.dpi
    texts = [shortened(point.label, _LABEL_ROOM) for point, _ in pairs]
    sizes = [(len(text) * _LABEL_SIZE * LETTER * per_in, _LABEL_SIZE / 72 * per_in * 1.25) for text in texts]
    box = axes.get_window_extent()
    places = [_pixels(axes, point) for point, _ in pairs]
    spots = label_spots(
        places,
        sizes[:_LABELS_AT_MOST],
        bounds=Box(box.x0, box.y0, box.x1, box.y1),
        taken=taken,
    )
    for (_, colour), place, text, spot in zip(pairs, places, texts, spots, strict=False):
        if spot is not None:
            pin = anchor(spot, place[0])
            x, y = axes.transData.inverted().transform((pin.x, pin.low))
            axes.text(x, y, text, fontsize=_LABEL_SIZE, color=colour, va="bottom", ha=pin.side, zorder=5)


def _pixels(axes: Axes, point: Point) -> tuple[float, float]:
    x, y = axes.transData.transform((point.x, point.y.middle))
    return float(x), float(y)
