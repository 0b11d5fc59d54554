"""Lanes along time by matplotlib."""

from __future__ import annotations

from typing import Final

from matplotlib.axes import Axes

from deepstone.report.lane_places import FILLED, height_in_tracks, lane_middles, lanes_scale, placed_spans
from deepstone.report.palette import readable_on
from deepstone.report.panels import LaneChart
from deepstone.report.scales import Scale
from deepstone.report.static.sheet import FAINT_INK, INK, LETTER, SIZE, Sheet, bar_style, row_labels, show_frame

_TRACK_IN: Final = 0.2
_AXIS_IN: Final = 0.5
_WORDS_SIZE: Final = 6.5


def lanes_height_in(chart: LaneChart) -> float:
    return height_in_tracks(chart) * _TRACK_IN + _AXIS_IN


def draw_lanes(sheet: Sheet, chart: LaneChart, top_in: float, left_in: float, width_in: float) -> None:
    labels, label_in = row_labels(lane.label for lane in chart.lanes)
    inner_in, tracks = width_in - label_in, height_in_tracks(chart)
    axes = sheet.axes(left_in + label_in, top_in, inner_in, tracks * _TRACK_IN)
    scale = lanes_scale(chart)
    axes.set(xscale="log" if scale.log else "linear", xlim=(scale.low, scale.high), ylim=(tracks, 0))
    axes.minorticks_off()
    axes.set_yticks(lane_middles(chart), labels=labels, fontsize=SIZE, color=INK)
    axes.set_xticks(list(scale.ticks), labels=list(scale.ticks.values()), fontsize=SIZE)
    axes.set_xlabel(scale.title, fontsize=SIZE, color=FAINT_INK, loc="left")
    axes.tick_params(axis="both", length=0, colors=FAINT_INK)
    axes.tick_params(axis="y", colors=INK, pad=4)
    show_frame(axes, "x", ("left",))
    _draw_spans(axes, chart, scale, inner_in)


def _draw_spans(axes: Axes, chart: LaneChart, scale: Scale, width_in: float) -> None:
    placed = placed_spans(chart)
    for at, series in enumerate(chart.series):
        own = [each for each in placed if each.span.series == at]
        axes.barh(
            [each.middle for each in own],
            [each.span.end - each.span.start for each in own],
            left=[each.span.start for each in own],
            height=FILLED,
            **bar_style(series.colour, hatched=series.published),
        )
    for each in placed:
        span = each.span
        if span.whisker is not None:
            axes.plot(span.whisker, [each.middle] * 2, "|-", color=INK, linewidth=1, markersize=5, zorder=5)
        room_in = abs(scale.share_along(span.end) - scale.share_along(span.start)) * width_in
        if not span.label or len(span.label) * _WORDS_SIZE * LETTER + 0.05 > room_in:
            continue
        axes.annotate(
            span.label,
            ((span.start + span.end) / 2, each.middle),
            fontsize=_WORDS_SIZE,
            va="center",
            ha="center",
            color=readable_on(chart.series[span.series].colour),
        )
