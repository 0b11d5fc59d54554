"""Horizontal bars by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes

from deepstone.report.bar_places import Piece, bars_per_row, extent, pieces, row_reach
from deepstone.report.figure import Bars
from deepstone.report.scales import Scale, linear_scale
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

_LABEL_SIZE: Final = 8.0
_NOTE_SIZE: Final = 7.5
_LABEL_ROOM: Final = 40  # characters
_BAR_IN: Final = 0.13
_LONE_BAR_IN: Final = 0.17
_BETWEEN_ROWS_IN: Final = 0.06
_TITLE_IN: Final = 0.27
_AXIS_IN: Final = 0.5
_MANY_ROWS: Final = 20


def bars_width_in(bars: Bars) -> float:
    del bars
    return 10.0


def bars_height_in(bars: Bars, width_in: float) -> float:
    return _TITLE_IN + _legend_in(bars, width_in) + _top_axis_in(bars) + _rows_in(bars) + _AXIS_IN


def draw_bars(sheet: Sheet, bars: Bars, top_in: float, left_in: float, width_in: float) -> None:
    sheet.text(left_in, top_in, bars.title, size=10, weight="bold")
    draw_legend(sheet, left_in, top_in + _TITLE_IN, legend_lines(_entries(bars), width_in))
    labels = [shortened(row.label, _LABEL_ROOM) for row in bars.rows]
    label_in = max((len(label) for label in labels), default=0) * _LABEL_SIZE * LETTER + 0.12
    top = top_in + _TITLE_IN + _legend_in(bars, width_in) + _top_axis_in(bars)
    axes = sheet.axes(left_in + label_in, top, width_in - label_in, _rows_in(bars))
    scale = linear_scale(bars.axis.unit, extent(bars))
    _draw_frame(axes, bars, scale, labels)
    _draw_pieces(axes, bars)
    _draw_notes(axes, bars, scale, width_in - label_in)


def _entries(bars: Bars) -> list[Entry]:
    """Only of series that some bar has."""
    used = {piece.series for piece in pieces(bars)}
    return [Entry(name=each.name, colour=each.colour) for at, each in enumerate(bars.series) if at in used]


def _legend_in(bars: Bars, width_in: float) -> float:
    return len(legend_lines(_entries(bars), width_in)) * LEGEND_LINE_IN + 0.05


def _top_axis_in(bars: Bars) -> float:
    """A long list has its numbers at both ends."""
    return 0.22 if len(bars.rows) > _MANY_ROWS else 0.0


def _rows_in(bars: Bars) -> float:
    in_row = bars_per_row(bars)
    return len(bars.rows) * ((_LONE_BAR_IN if in_row == 1 else _BAR_IN * in_row) + _BETWEEN_ROWS_IN) + 0.05


def _draw_frame(axes: Axes, bars: Bars, scale: Scale, labels: Sequence[str]) -> None:
    axes.set_ylim(len(bars.rows) - 0.5, -0.5)
    axes.set_yticks(range(len(labels)), labels=labels, fontsize=_LABEL_SIZE, color=INK)
    axes.set_xticks([tick.at for tick in scale.ticks], labels=[tick.text for tick in scale.ticks], fontsize=_LABEL_SIZE)
    axes.set_xlabel(f"{bars.axis.label} in {scale.unit}", fontsize=_LABEL_SIZE, color=FAINT_INK, loc="left")
    many = len(bars.rows) > _MANY_ROWS
    axes.tick_params(axis="both", length=0, colors=FAINT_INK, labeltop=many)
    axes.tick_params(axis="y", colors=INK, pad=4)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "left")
        spine.set_color(FAINT_INK)


def _draw_pieces(axes: Axes, bars: Bars) -> None:
    found = pieces(bars)
    for at, series in enumerate(bars.series):
        own = [piece for piece in found if piece.series == at]
        axes.barh(
            [piece.middle for piece in own],
            [piece.value.middle for piece in own],
            left=[piece.start for piece in own],
            height=[piece.thickness * 0.92 for piece in own],
            color=series.colour,
            linewidth=0,
        )
    _draw_whiskers(axes, [piece for piece in found if piece.value.low is not None and piece.value.high is not None])


def _draw_whiskers(axes: Axes, found: Sequence[Piece]) -> None:
    if not found:
        return
    below = [piece.value.middle - (piece.value.low or 0.0) for piece in found]
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


def _draw_notes(axes: Axes, bars: Bars, scale: Scale, width_in: float) -> None:
    """Behind the bars, for which the axis goes on beyond the longest."""
    longest_in = max((len(row.note) for row in bars.rows), default=0) * _NOTE_SIZE * LETTER + 0.15
    share = min(0.6, longest_in / width_in)
    span = (scale.high - scale.low) / (1 - share)
    axes.set_xlim(scale.low, scale.low + span)
    gap = span * 0.06 / width_in
    for at, (row, reached) in enumerate(zip(bars.rows, row_reach(bars), strict=True)):
        axes.text(reached + gap, at, row.note, fontsize=_NOTE_SIZE, va="center", ha="left", color=FAINT_INK)
