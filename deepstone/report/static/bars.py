"""Horizontal bars by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes

from deepstone.report.bar_places import Piece, RowSize, bars_scale, pieces, whiskers, words_behind
from deepstone.report.panels import BarChart, Series
from deepstone.report.scales import Scale
from deepstone.report.static.sheet import (
    FAINT_INK,
    INK,
    LETTER,
    MARKERS,
    SIZE,
    Sheet,
    bar_style,
    row_labels,
    show_frame,
)
from deepstone.report.wording import cut

_WORDS_SIZE: Final = 7.5
_ROW_IN: Final = RowSize(bar=0.13, single_bar=0.17, between_rows=0.06)
_AXIS_IN: Final = 0.5
_MANY_ROWS: Final = 20
_WORDS_ROOM: Final = 56


def bars_height_in(bars: BarChart) -> float:
    return _top_axis_in(bars) + _rows_in(bars) + _AXIS_IN


def draw_bars(sheet: Sheet, bars: BarChart, top_in: float, left_in: float, width_in: float) -> None:
    labels, label_in = row_labels(row.label for row in bars.rows)
    inner_in = width_in - label_in
    axes = sheet.axes(left_in + label_in, top_in + _top_axis_in(bars), inner_in, _rows_in(bars))
    scale = bars_scale(bars)
    _draw_frame(axes, scale, labels)
    _draw_pieces(axes, bars, scale)
    _draw_words(axes, bars, scale, inner_in)


def _top_axis_in(bars: BarChart) -> float:
    """Return the height of a second axis: a long list has its numbers at both ends."""
    return 0.22 if len(bars.rows) > _MANY_ROWS else 0.0


def _rows_in(bars: BarChart) -> float:
    return len(bars.rows) * _ROW_IN.of_row(bars) + 0.05


def _draw_frame(axes: Axes, scale: Scale, labels: Sequence[str]) -> None:
    if scale.log:
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_yticks(range(len(labels)), labels=labels, fontsize=SIZE, color=INK)
    axes.set_xticks(list(scale.ticks), labels=list(scale.ticks.values()), fontsize=SIZE)
    axes.set_xlabel(scale.title, fontsize=SIZE, color=FAINT_INK, loc="left")
    axes.tick_params(axis="both", length=0, colors=FAINT_INK, labeltop=len(labels) > _MANY_ROWS)
    axes.tick_params(axis="y", colors=INK, pad=4)
    show_frame(axes, "x", ("left",))


def _draw_pieces(axes: Axes, bars: BarChart, scale: Scale) -> None:
    found = pieces(bars)
    if bars.reference is not None:
        axes.axvline(bars.reference, color=FAINT_INK, linewidth=1, zorder=1.5)
    if scale.log:
        _draw_whiskers(axes, bars)
    for at, series in enumerate(bars.series):
        own = [piece for piece in found if piece.segment.series == at]
        if scale.log:
            _draw_points(axes, series, own)
        else:
            _draw_bars_of(axes, series, own)
    if not scale.log:
        _draw_whiskers(axes, bars)


def _draw_bars_of(axes: Axes, series: Series, own: Sequence[Piece]) -> None:
    axes.barh(
        [piece.middle for piece in own],
        [piece.segment.value.middle for piece in own],
        left=[piece.start for piece in own],
        height=[piece.thickness * 0.92 for piece in own],
        **bar_style(series.colour, hatched=series.published),
    )


def _draw_points(axes: Axes, series: Series, own: Sequence[Piece]) -> None:
    axes.plot(
        [piece.end for piece in own],
        [piece.middle for piece in own],
        MARKERS[series.marker],
        color=series.colour,
        markerfacecolor="white" if series.published else series.colour,
        markeredgewidth=1.3,
        markersize=5.5,
        zorder=4,
    )


def _draw_whiskers(axes: Axes, bars: BarChart) -> None:
    known = whiskers(bars)
    if not known:
        return
    ends = [each.piece.end for each in known]
    axes.errorbar(
        ends,
        [each.middle for each in known],
        xerr=[
            [max(0.0, end - each.low) for end, each in zip(ends, known, strict=True)],
            [max(0.0, each.high - end) for end, each in zip(ends, known, strict=True)],
        ],
        fmt="none",
        ecolor=INK,
        elinewidth=0.8,
        capsize=1.6,
        capthick=0.8,
    )


def _draw_words(axes: Axes, bars: BarChart, scale: Scale, width_in: float) -> None:
    """Draw the text behind the bars, and extend the axis for it."""
    found = [(words, cut(words.text, _WORDS_ROOM)) for words in words_behind(bars)]
    needed = [len(text) * scale.share_along(words.start) for words, text in found]
    share = min(0.6, (max(needed, default=0) * _WORDS_SIZE * LETTER + 0.15) / width_in)
    axes.set_xlim(scale.low, _further(scale, 1 / (1 - share)))
    for words, text in found:
        axes.annotate(
            f"× {text}" if words.gap else text,
            (words.start, words.middle),
            (4, 0),
            textcoords="offset points",
            fontsize=_WORDS_SIZE,
            va="center",
            ha="left",
            color=FAINT_INK,
            style="italic" if words.gap else "normal",
        )


def _further(scale: Scale, times: float) -> float:
    """Return the end of an axis that is this many times as long."""
    if scale.log:
        return scale.low * (scale.high / scale.low) ** times
    return scale.low + (scale.high - scale.low) * times
