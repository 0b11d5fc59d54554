"""Horizontal bars for the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from deepstone.report.bar_places import Piece, RowSize, bars_scale, pieces, whiskers, words_behind
from deepstone.report.bar_places import Words as BehindWords
from deepstone.report.html.plot import (
    FAINT,
    LABEL_ROOM,
    NARROW_LABEL_ROOM,
    ROWS_MARGIN,
    Box,
    Dot,
    Drawing,
    Plot,
    Texts,
    Whisker,
    Words,
    keys,
    labels,
    lines,
    rows_ruler,
    ruler,
)
from deepstone.report.legend import used_series
from deepstone.report.panels import BarChart, Series
from deepstone.report.scales import Scale
from deepstone.report.wording import SHOWN, cut, value_words, wrapped_name

_ROW_PX: Final = RowSize(bar=13, single_bar=17, between_rows=7)
_POINT_PX: Final = 10
_BEHIND_PX: Final = 6
_WORDS_ROOM: Final = 32
_SETTING_ROOM: Final = 44  # on each of two lines
_LINE_PX: Final = 14
_GAP_PX: Final = 6
_LINES: Final = 4  # of a narrow label: a setup of four axes


def bars_plot(bars: BarChart) -> Plot:
    scale, found = bars_scale(bars), pieces(bars)
    used = used_series(bars)
    behind = words_behind(bars)
    names = [row.label for row in bars.rows]
    wide = _labels(bars, names, LABEL_ROOM, _SETTING_ROOM, 2)
    narrow = _labels(bars, names, NARROW_LABEL_ROOM, NARROW_LABEL_ROOM, _LINES)
    most_lines = max((len(label) for label in (*wide, *narrow)), default=1)
    # Whiskers are above all bars, because a bar would cover those of the one before it.
    lying = whiskers(bars)
    return Plot(
        title=bars.title,
        keys=keys(bars, lambda place: (place, len(used) + place)),
        drawing=Drawing(
            groups=(
                *(
                    tuple(_mark(bars, bars.series[at], piece) for piece in found if piece.segment.series == at)
                    for at in used
                ),
                *(
                    tuple(
                        Whisker(at=each.middle, low=each.low, high=each.high)
                        for each in lying
                        if each.piece.segment.series == at
                    )
                    for at in used
                ),
                tuple(_words(words) for words in behind),
                tuple(_gap(bars, words) for words in behind if words.gap),
            ),
            x=ruler(scale, letters=_letters(behind, scale)),
            y=rows_ruler(len(names)),
            margin=ROWS_MARGIN,
            reference=bars.reference,
            height_px=len(names) * _row_px(bars, most_lines) + ROWS_MARGIN.height_px,
            labels=wide,
            narrow_labels=narrow,
        ),
    )


def _row_px(bars: BarChart, most_lines: int) -> int:
    needed = _ROW_PX.of_row(bars)
    return needed if most_lines == 1 else max(needed, _GAP_PX + most_lines * _LINE_PX)


def _labels(bars: BarChart, names: Sequence[str], room: int, setting_room: int, most_lines: int) -> tuple[Texts, ...]:
    """Layers are one line each. Rows with words behind their bars have long names, such as setups, which wrap."""
    if not any(row.bar_labels for row in bars.rows):
        return labels(names, room)
    return tuple(lines(*wrapped_name(name, setting_room, most_lines)) for name in names)


def _mark(bars: BarChart, series: Series, piece: Piece) -> Box | Dot:
    tooltip = _tooltip(bars, series, piece)
    if bars.axis.log:
        return Dot.of(series, piece.end, piece.middle, tooltip, size_px=_POINT_PX)
    half = piece.thickness * 0.46
    return Box(
        x0=piece.start,
        x1=piece.end,
        y0=piece.middle - half,
        y1=piece.middle + half,
        colour=series.colour,
        style="hatched" if series.published else "filled",
        told=tooltip,
    )


def _tooltip(bars: BarChart, series: Series, piece: Piece) -> Texts:
    words = value_words(piece.segment.value, SHOWN[bars.axis.unit])
    return lines(bars.rows[piece.row].label, f"{series.name}: {words}", *piece.segment.details)


def _letters(behind: list[BehindWords], scale: Scale) -> int:
    """Return the room for text beyond the axis: all of it behind a long bar, none behind one that ends early."""
    needed = [len(_shown(words.text)) * scale.share_along(words.start) for words in behind]
    return math.ceil(max(needed, default=0))


def _shown(words: str) -> str:
    return cut(words, _WORDS_ROOM)


def _words(words: BehindWords) -> Words:
    return Words(x=words.start, y=words.middle, lines=(_shown(words.text),), shift=(_BEHIND_PX, 0.0))


def _gap(bars: BarChart, words: BehindWords) -> Dot:
    """Return a cross at the start of a missing bar; its tooltip gives the reason."""
    tooltip = lines(bars.rows[words.row].label, *words.details)
    return Dot(x=words.start, y=words.middle, colour=FAINT, symbol="cross", size_px=7, told=tooltip)
