"""Horizontal bars for plotly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from deepstone.report.bar_places import Piece, bars_per_row, extent, pieces, row_reach
from deepstone.report.figure import Bars, Unit
from deepstone.report.figures.numbers import value_cell
from deepstone.report.html.plot import LABEL_ROOM, NARROW_LABEL_ROOM, Key, Plot, Trace, inert, labels, lines, ruler
from deepstone.report.scales import linear_scale
from deepstone.units import bytes_, seconds

_BAR_PX: Final = 13
_LONE_BAR_PX: Final = 17
_BETWEEN_ROWS_PX: Final = 7
_AXIS_PX: Final = 44
_TOP_PX: Final = 4
_NOTE_ROOM: Final = 26
_SHOWN: Final[dict[Unit, Callable[[float], str]]] = {Unit.SECONDS: seconds, Unit.BYTES: bytes_}


def bars_plot(bars: Bars) -> Plot:
    in_row = bars_per_row(bars)
    rows_px = len(bars.rows) * ((_LONE_BAR_PX if in_row == 1 else in_row * _BAR_PX) + _BETWEEN_ROWS_PX)
    found = pieces(bars)
    used = [at for at in range(len(bars.series)) if any(piece.series == at for piece in found)]
    own = [[piece for piece in found if piece.series == at] for at in used]
    traces = [_trace(bars, at, each) for at, each in zip(used, own, strict=True)]
    whiskers = [_whiskers(each) for each in own]  # above all bars, since a bar would cover those of the one before it
    names = [row.label for row in bars.rows]
    scale = linear_scale(bars.axis.unit, extent(bars))
    notes = [row.note[:_NOTE_ROOM] for row in bars.rows]
    return Plot(
        title=bars.title,
        traces=(*traces, *whiskers, _notes(bars, notes)),
        layout={
            "barmode": "overlay",
            "margin": {"t": _TOP_PX, "b": _AXIS_PX, "r": 8},
            "yaxis": {"range": [len(names) - 0.5, -0.5], "tickvals": list(range(len(names)))},
        },
        keys=tuple(
            Key(name=bars.series[at].name, colour=bars.series[at].colour, traces=(place, len(used) + place))
            for place, at in enumerate(used)
        ),
        height_px=rows_px + _AXIS_PX + _TOP_PX,
        labels=labels(names, LABEL_ROOM),
        narrow_labels=labels(names, NARROW_LABEL_ROOM),
        ruler=ruler(scale, bars.axis.label, letters=max(map(len, notes), default=0)),
    )


def _trace(bars: Bars, at: int, own: Sequence[Piece]) -> Trace:
    shown = _SHOWN[bars.axis.unit]
    series = bars.series[at]
    texts = [lines(bars.rows[piece.row].label, f"{series.name}: {value_cell(piece.value, shown)}") for piece in own]
    return {
        "type": "bar",
        "orientation": "h",
        "name": inert(series.name),
        "y": [piece.middle for piece in own],
        "x": [piece.value.middle for piece in own],
        "base": [piece.start for piece in own],
        "width": [piece.thickness * 0.92 for piece in own],
        "marker": {"color": series.colour},
        "hovertext": texts,
        "hoverinfo": "text",
    }


def _whiskers(own: Sequence[Piece]) -> Trace:
    """The intervals of one series, at the ends of its pieces."""
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
            "arrayminus": [piece.value.middle - low for piece, low, _ in measured],
            "thickness": 1,
            "width": 2,
        },
    }


def _notes(bars: Bars, notes: Sequence[str]) -> Trace:
    """Behind the bars."""
    return {
        "type": "scatter",
        "mode": "text",
        "x": row_reach(bars),
        "y": list(range(len(notes))),
        "text": [inert(f" {note}") for note in notes],
        "textposition": "middle right",
        "textfont": {"size": 11},
        "hoverinfo": "skip",
        "cliponaxis": False,
    }
