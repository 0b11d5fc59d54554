"""Horizontal bars for plotly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from deepstone.report.bar_places import Piece, bars_per_row, bars_scale, measured, pieces, words_behind
from deepstone.report.figure import BarChart, Series
from deepstone.report.html.plot import (
    LABEL_ROOM,
    NARROW_LABEL_ROOM,
    Plot,
    PlotlyObject,
    inert,
    keys,
    labels,
    lines,
    scatter,
    whiskers,
)
from deepstone.report.legend import legend
from deepstone.report.scales import Scale
from deepstone.report.wording import SHOWN, cut, value_words, wrapped_name

_BAR_PX: Final = 13
_LONE_BAR_PX: Final = 17
_BETWEEN_ROWS_PX: Final = 7
_AXIS_PX: Final = 44
_TOP_PX: Final = 4
_WORDS_ROOM: Final = 32
_SETTING_ROOM: Final = 60
_TWO_LINES_PX: Final = 34


def bars_plot(bars: BarChart) -> Plot:
    scale, found = bars_scale(bars), pieces(bars)
    used = [entry.series for entry in legend(bars) if entry.series is not None]
    own = [[piece for piece in found if piece.segment.series == at] for at in used]
    traces = [_trace(bars, bars.series[at], each) for at, each in zip(used, own, strict=True)]
    # Above all bars, since a bar would cover those of the one before it.
    intervals = [_intervals(each, least=scale.low if scale.log else None) for each in own]
    names = [row.label for row in bars.rows]
    narrow = _narrow_labels(bars)
    two_lines = any("<br>" in label for label in narrow)
    return Plot(
        title=bars.title,
        traces=(*traces, *intervals, _words(bars), _gaps(bars)),
        layout={
            "barmode": "overlay",
            "xaxis": {"type": "log" if scale.log else "linear"},
            "shapes": _reference(bars),
            "margin": {"t": _TOP_PX, "b": _AXIS_PX, "r": 8},
            "yaxis": {"range": [len(names) - 0.5, -0.5], "tickvals": list(range(len(names)))},
        },
        keys=keys(bars, lambda place: (place, len(used) + place)),
        height_px=len(names) * _row_px(bars_per_row(bars), two_lines=two_lines) + _AXIS_PX + _TOP_PX,
        labels=labels(names, _SETTING_ROOM if _has_bar_labels(bars) else LABEL_ROOM),
        narrow_labels=narrow,
        across=scale,
        letters=_letters(bars, scale),
    )


def _row_px(in_row: int, *, two_lines: bool) -> int:
    needed = (_LONE_BAR_PX if in_row == 1 else in_row * _BAR_PX) + _BETWEEN_ROWS_PX
    return max(needed, _TWO_LINES_PX) if two_lines else needed


def _has_bar_labels(bars: BarChart) -> bool:
    """Whether its rows are things to be told apart by long names, such as setups, not layers in their order."""
    return any(row.bar_labels for row in bars.rows)


def _narrow_labels(bars: BarChart) -> tuple[str, ...]:
    names = [row.label for row in bars.rows]
    if not _has_bar_labels(bars):
        return labels(names, NARROW_LABEL_ROOM)
    return tuple(lines(*wrapped_name(name, NARROW_LABEL_ROOM, 2)) for name in names)


def _trace(bars: BarChart, series: Series, own: Sequence[Piece]) -> PlotlyObject:
    told = [_told(bars, series, piece) for piece in own]
    y = [piece.middle for piece in own]
    if not bars.axis.log:
        return {
            "type": "bar",
            "orientation": "h",
            "name": inert(series.name),
            "x": [piece.segment.value.middle for piece in own],
            "y": y,
            "base": [piece.start for piece in own],
            "width": [piece.thickness * 0.92 for piece in own],
            "marker": _hatched(series) if series.published else {"color": series.colour},
            "hovertext": told,
            "hoverinfo": "text",
        }
    symbol = f"{series.marker}-open" if series.published else series.marker
    marker = {"color": series.colour, "symbol": symbol, "size": 10, "line": {"width": 2, "color": series.colour}}
    x = [piece.end for piece in own]
    return scatter(x, y, "markers", told, name=inert(series.name), meta="point", marker=marker, cliponaxis=False)


def _told(bars: BarChart, series: Series, piece: Piece) -> str:
    words = value_words(piece.segment.value, SHOWN[bars.axis.unit])
    return lines(bars.rows[piece.row].label, f"{series.name}: {words}", *piece.segment.details)


def _hatched(series: Series) -> PlotlyObject:
    pattern = {"shape": "/", "fgcolor": series.colour, "bgcolor": "rgba(0,0,0,0)", "size": 6, "solidity": 0.25}
    return {"color": series.colour, "pattern": pattern, "line": {"color": series.colour, "width": 1.5}}


def _reference(bars: BarChart) -> list[PlotlyObject]:
    if bars.reference is None:
        return []
    ends = {"x0": bars.reference, "x1": bars.reference, "y0": 0, "y1": 1, "yref": "paper"}
    return [{"type": "line", **ends, "line": {"width": 1.5, "color": "#8A929C"}, "layer": "below"}]


def _intervals(own: Sequence[Piece], *, least: float | None) -> PlotlyObject:
    """Of one series, at the ends of its pieces."""
    known = measured(own, least)
    error = whiskers([below for _, below, _ in known], [above for _, _, above in known], thickness=1, width=2)
    x, y = [piece.end for piece, _, _ in known], [piece.middle for piece, _, _ in known]
    return scatter(x, y, "markers", None, marker={"opacity": 0}, error_x=error)


def _letters(bars: BarChart, scale: Scale) -> int:
    """What words need beyond the end of the axis: all of it behind a long bar, nothing behind one that ends early."""
    needed = [len(_shown(words.text)) * scale.share_along(words.start) for words in words_behind(bars)]
    return math.ceil(max(needed, default=0))


def _shown(words: str) -> str:
    return cut(words, _WORDS_ROOM)


def _words(bars: BarChart) -> PlotlyObject:
    """Notes and labels, behind the bars."""
    found = words_behind(bars)
    return scatter(
        [words.start for words in found],
        [words.middle for words in found],
        "text",
        None,
        text=[inert(f"  {_shown(words.text)}") for words in found],
        textposition="middle right",
        textfont={"size": 11},
        cliponaxis=False,
    )


def _gaps(bars: BarChart) -> PlotlyObject:
    """A cross where a bar would begin; who points at it is told why there is none."""
    gaps = [words for words in words_behind(bars) if words.gap]
    return scatter(
        [gap.start for gap in gaps],
        [gap.middle for gap in gaps],
        "markers",
        [lines(bars.rows[gap.row].label, *gap.details) for gap in gaps],
        meta="gap",
        marker={"symbol": "x-thin-open", "size": 7},
        cliponaxis=False,
    )
