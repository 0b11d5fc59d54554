"""Horizontal bars by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from matplotlib.axes import Axes

from deepstone.report.bar_places import Piece, bar_label_places, bars_per_row, bars_scale, pieces, row_reach
from deepstone.report.figure import BarChart, Series
from deepstone.report.scales import Scale, share_along, titled
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
from deepstone.report.wording import cut, shortened

_LABEL_SIZE: Final = 8.0
_NOTE_SIZE: Final = 7.5
_LABEL_ROOM: Final = 40  # characters
_BAR_IN: Final = 0.13
_LONE_BAR_IN: Final = 0.17
_BETWEEN_ROWS_IN: Final = 0.06
_TITLE_IN: Final = 0.27
_AXIS_IN: Final = 0.5
_MANY_ROWS: Final = 20
_BAR_LABEL_ROOM: Final = 56


def bars_width_in(bars: BarChart) -> float:
    del bars
    return 10.0


def bars_height_in(bars: BarChart, width_in: float) -> float:
    return _TITLE_IN + _legend_in(bars, width_in) + _top_axis_in(bars) + _rows_in(bars) + _AXIS_IN


def draw_bars(sheet: Sheet, bars: BarChart, top_in: float, left_in: float, width_in: float) -> None:
    sheet.text(left_in, top_in, bars.title, size=10, weight="bold")
    draw_legend(sheet, left_in, top_in + _TITLE_IN, legend_lines(_entries(bars), width_in))
    labels = [shortened(row.label, _LABEL_ROOM) for row in bars.rows]
    label_in = max((len(label) for label in labels), default=0) * _LABEL_SIZE * LETTER + 0.12
    top = top_in + _TITLE_IN + _legend_in(bars, width_in) + _top_axis_in(bars)
    axes = sheet.axes(left_in + label_in, top, width_in - label_in, _rows_in(bars))
    scale = bars_scale(bars)
    _draw_frame(axes, bars, scale, labels)
    _draw_pieces(axes, bars, scale)
    _draw_words(axes, bars, scale, width_in - label_in)


def _entries(bars: BarChart) -> list[Entry]:
    """Only of series that some bar has."""
    used = {piece.series for piece in pieces(bars)}
    return [
        Entry(
            name=each.name,
            colour=each.colour,
            marker=_marker(each) if bars.axis.log else "",
            hatched=each.published and not bars.axis.log,
            hollow=each.published,
        )
        for at, each in enumerate(bars.series)
        if at in used
    ]


def _marker(series: Series) -> str:
    return "D" if series.published else "o"


def _legend_in(bars: BarChart, width_in: float) -> float:
    return len(legend_lines(_entries(bars), width_in)) * LEGEND_LINE_IN + 0.05


def _top_axis_in(bars: BarChart) -> float:
    """A long list has its numbers at both ends."""
    return 0.22 if len(bars.rows) > _MANY_ROWS else 0.0


def _rows_in(bars: BarChart) -> float:
    in_row = bars_per_row(bars)
    return len(bars.rows) * ((_LONE_BAR_IN if in_row == 1 else _BAR_IN * in_row) + _BETWEEN_ROWS_IN) + 0.05


def _draw_frame(axes: Axes, bars: BarChart, scale: Scale, labels: Sequence[str]) -> None:
    if bars.axis.log:
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_ylim(len(bars.rows) - 0.5, -0.5)
    axes.set_yticks(range(len(labels)), labels=labels, fontsize=_LABEL_SIZE, color=INK)
    axes.set_xticks([tick.at for tick in scale.ticks], labels=[tick.text for tick in scale.ticks], fontsize=_LABEL_SIZE)
    axes.set_xlabel(titled(bars.axis.label, scale.unit), fontsize=_LABEL_SIZE, color=FAINT_INK, loc="left")
    many = len(bars.rows) > _MANY_ROWS
    axes.tick_params(axis="both", length=0, colors=FAINT_INK, labeltop=many)
    axes.tick_params(axis="y", colors=INK, pad=4)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "left")
        spine.set_color(FAINT_INK)


def _draw_pieces(axes: Axes, bars: BarChart, scale: Scale) -> None:
    found = pieces(bars)
    if bars.reference is not None:
        axes.axvline(bars.reference, color=FAINT_INK, linewidth=1, zorder=1.5)
    if bars.axis.log:
        _draw_whiskers(axes, found, least=scale.low)
    for at, series in enumerate(bars.series):
        own = [piece for piece in found if piece.series == at]
        if bars.axis.log:
            _draw_points(axes, series, own)
        else:
            _draw_bars_of(axes, series, own)
    if not bars.axis.log:
        _draw_whiskers(axes, found, least=-math.inf)


def _draw_bars_of(axes: Axes, series: Series, own: Sequence[Piece]) -> None:
    filled: dict[str, Any] = {"color": series.colour, "linewidth": 0}
    hollow: dict[str, Any] = {"facecolor": "white", "edgecolor": series.colour, "hatch": "/////", "linewidth": 1.0}
    axes.barh(
        [piece.middle for piece in own],
        [piece.value.middle for piece in own],
        left=[piece.start for piece in own],
        height=[piece.thickness * 0.92 for piece in own],
        **(hollow if series.published else filled),
    )


def _draw_points(axes: Axes, series: Series, own: Sequence[Piece]) -> None:
    axes.plot(
        [piece.end for piece in own],
        [piece.middle for piece in own],
        _marker(series),
        color=series.colour,
        markerfacecolor="white" if series.published else series.colour,
        markeredgewidth=1.3,
        markersize=5.5,
        zorder=4,
    )


def _draw_whiskers(axes: Axes, pieces_of_all: Sequence[Piece], *, least: float) -> None:
    found = [piece for piece in pieces_of_all if piece.value.low is not None and piece.value.high is not None]
    if not found:
        return
    below = [piece.value.middle - max(least, piece.value.low or 0.0) for piece in found]
    above = [(piece.value.high or 0.0) - piece.value.middle for piece in found]
    axes.errorbar(
        [piece.end for piece in found],
        [piece.middle for piece in found],
        xerr=[below, above],
        fmt="none",
        ecolor=INK,
        elinewidth=0.8,
        capsize=1.6,
        capthick=0.8,
    )


def _draw_words(axes: Axes, bars: BarChart, scale: Scale, width_in: float) -> None:
    """Notes and labels behind the bars, for which the axis goes on beyond the longest."""
    notes = [
        (reached, at, row.note, False)
        for at, (row, reached) in enumerate(zip(bars.rows, row_reach(bars), strict=True))
        if row.note
    ]
    bar_labels = [
        (place.start, place.middle, cut(place.bar_label.text, _BAR_LABEL_ROOM), place.bar_label.gap)
        for place in bar_label_places(bars)
    ]
    needed = [len(words) * share_along(scale, start, log=bars.axis.log) for start, _, words, _ in bar_labels]
    longest_in = max([*(len(words) for _, _, words, _ in notes), *needed], default=0) * _NOTE_SIZE * LETTER + 0.15
    share = min(0.6, longest_in / width_in)
    end = _further(bars, scale, 1 / (1 - share))
    axes.set_xlim(scale.low, end)
    for start, middle, words, gap in (*notes, *bar_labels):
        axes.annotate(
            f"× {words}" if gap else words,
            (start, middle),
            (4, 0),
            textcoords="offset points",
            fontsize=_NOTE_SIZE,
            va="center",
            ha="left",
            color=FAINT_INK,
            style="italic" if gap else "normal",
        )


def _further(bars: BarChart, scale: Scale, times: float) -> float:
    """Where an axis ends that is so many times as long."""
    if bars.axis.log:
        return scale.low * (scale.high / scale.low) ** times
    return scale.low + (scale.high - scale.low) * times
