"""Horizontal bars for plotly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from deepstone.report.bar_places import Piece, bar_label_places, bars_per_row, bars_scale, pieces, row_reach
from deepstone.report.figure import BarChart, Series
from deepstone.report.html.plot import LABEL_ROOM, NARROW_LABEL_ROOM, Key, Plot, Trace, inert, labels, lines, ruler
from deepstone.report.scales import Scale, share_along
from deepstone.report.wording import SHOWN, cut, value_words, wrapped_name

_BAR_PX: Final = 13
_LONE_BAR_PX: Final = 17
_BETWEEN_ROWS_PX: Final = 7
_AXIS_PX: Final = 44
_TOP_PX: Final = 4
_NOTE_ROOM: Final = 32
_SETTING_ROOM: Final = 60
_TWO_LINES_PX: Final = 34


def bars_plot(bars: BarChart) -> Plot:
    in_row = bars_per_row(bars)
    found = pieces(bars)
    used = [at for at in range(len(bars.series)) if any(piece.series == at for piece in found)]
    own = [[piece for piece in found if piece.series == at] for at in used]
    scale = bars_scale(bars)
    traces = [_trace(bars, at, each) for at, each in zip(used, own, strict=True)]
    # Above all bars, since a bar would cover those of the one before it.
    whiskers = [_whiskers(each, least=scale.low if bars.axis.log else None) for each in own]
    names = [row.label for row in bars.rows]
    narrow = _narrow_labels(bars)
    two_lines = any("<br>" in label for label in narrow)
    return Plot(
        title=bars.title,
        traces=(*traces, *whiskers, _words(bars), _gaps(bars)),
        layout={
            "barmode": "overlay",
            "xaxis": {"type": "log" if bars.axis.log else "linear"},
            "shapes": _reference(bars),
            "margin": {"t": _TOP_PX, "b": _AXIS_PX, "r": 8},
            "yaxis": {"range": [len(names) - 0.5, -0.5], "tickvals": list(range(len(names)))},
        },
        keys=tuple(
            Key(
                name=bars.series[at].name,
                colour=bars.series[at].colour,
                traces=(place, len(used) + place),
                frame=bars.series[at].published,
                marker=_symbol(bars.series[at]) if bars.axis.log else "square",
            )
            for place, at in enumerate(used)
        ),
        height_px=len(names) * _row_px(in_row, two_lines=two_lines) + _AXIS_PX + _TOP_PX,
        labels=labels(names, _SETTING_ROOM if _has_bar_labels(bars) else LABEL_ROOM),
        narrow_labels=narrow,
        ruler=ruler(scale, bars.axis.label, letters=_letters(bars, scale), log=bars.axis.log),
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


def _trace(bars: BarChart, at: int, own: Sequence[Piece]) -> Trace:
    shown = SHOWN[bars.axis.unit]
    series = bars.series[at]
    texts = [
        lines(bars.rows[piece.row].label, f"{series.name}: {value_words(piece.value, shown)}", *piece.details)
        for piece in own
    ]
    return {
        "name": inert(series.name),
        "y": [piece.middle for piece in own],
        "hovertext": texts,
        "hoverinfo": "text",
        **(_points(series, own) if bars.axis.log else _bars(series, own)),
    }


def _bars(series: Series, own: Sequence[Piece]) -> Trace:
    return {
        "type": "bar",
        "orientation": "h",
        "x": [piece.value.middle for piece in own],
        "base": [piece.start for piece in own],
        "width": [piece.thickness * 0.92 for piece in own],
        "marker": _hatched(series) if series.published else {"color": series.colour},
    }


def _hatched(series: Series) -> dict[str, Any]:
    pattern = {"shape": "/", "fgcolor": series.colour, "bgcolor": "rgba(0,0,0,0)", "size": 6, "solidity": 0.25}
    return {"color": series.colour, "pattern": pattern, "line": {"color": series.colour, "width": 1.5}}


def _points(series: Series, own: Sequence[Piece]) -> Trace:
    symbol = _symbol(series) + ("-open" if series.published else "")
    return {
        "type": "scatter",
        "mode": "markers",
        "meta": "point",
        "x": [piece.end for piece in own],
        "marker": {"color": series.colour, "symbol": symbol, "size": 10, "line": {"width": 2, "color": series.colour}},
        "cliponaxis": False,
    }


def _symbol(series: Series) -> str:
    return "diamond" if series.published else "circle"


def _reference(bars: BarChart) -> list[dict[str, Any]]:
    if bars.reference is None:
        return []
    ends = {"x0": bars.reference, "x1": bars.reference, "y0": 0, "y1": 1, "yref": "paper"}
    return [{"type": "line", **ends, "line": {"width": 1.5, "color": "#8A929C"}, "layer": "below"}]


def _whiskers(own: Sequence[Piece], *, least: float | None) -> Trace:
    """The intervals of one series, at the ends of its pieces; none reaches below the least that an axis can show."""
    known = [(piece, piece.value.low, piece.value.high) for piece in own]
    measured = [(piece, low, high) for piece, low, high in known if low is not None and high is not None]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [piece.end for piece, _, _ in measured],
        "y": [piece.middle for piece, _, _ in measured],
        "marker": {"opacity": 0},
        "hoverinfo": "skip",
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [high - piece.value.middle for piece, _, high in measured],
            "arrayminus": [
                piece.value.middle - (low if least is None else max(least, low)) for piece, low, _ in measured
            ],
            "thickness": 1,
            "width": 2,
        },
    }


def _letters(bars: BarChart, scale: Scale) -> int:
    """What words need beyond the end of the axis: all of it behind a long bar, nothing behind one that ends early."""
    notes = [len(_shown(row.note)) for row in bars.rows]
    bar_labels = [
        len(_shown(place.bar_label.text)) * share_along(scale, place.start, log=bars.axis.log)
        for place in bar_label_places(bars)
    ]
    return math.ceil(max([*notes, *bar_labels], default=0))


def _shown(words: str) -> str:
    return cut(words, _NOTE_ROOM)


def _words(bars: BarChart) -> Trace:
    """Notes and labels, behind the bars."""
    notes = [(reached, at, row.note) for at, (row, reached) in enumerate(zip(bars.rows, row_reach(bars), strict=True))]
    bar_labels = [(place.start, place.middle, place.bar_label.text) for place in bar_label_places(bars)]
    found = [(x, y, words) for x, y, words in (*notes, *bar_labels) if words]
    return {
        "type": "scatter",
        "mode": "text",
        "x": [x for x, _, _ in found],
        "y": [y for _, y, _ in found],
        "text": [inert(f"  {_shown(words)}") for _, _, words in found],
        "textposition": "middle right",
        "textfont": {"size": 11},
        "hoverinfo": "skip",
        "cliponaxis": False,
    }


def _gaps(bars: BarChart) -> Trace:
    """A cross where a bar would begin; who points at it is told why there is none."""
    gaps = [place for place in bar_label_places(bars) if place.bar_label.gap]
    return {
        "type": "scatter",
        "mode": "markers",
        "meta": "gap",
        "x": [place.start for place in gaps],
        "y": [place.middle for place in gaps],
        "marker": {"symbol": "x-thin-open", "size": 7},
        "hovertext": [lines(bars.rows[place.row].label, *place.bar_label.details) for place in gaps],
        "hoverinfo": "text",
        "cliponaxis": False,
    }
