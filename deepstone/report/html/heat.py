"""Heat maps for the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from deepstone.absent import Absent
from deepstone.report.html.plot import (
    LABEL_ROOM,
    Box,
    Drawing,
    Margin,
    Plot,
    Ruler,
    Texts,
    Words,
    keys,
    labels,
    lines,
    rows_ruler,
)
from deepstone.report.palette import FRAME, NOTHING, heat, readable_on
from deepstone.report.panels import Cell, HeatMap
from deepstone.report.wording import wrapped_name
from deepstone.units import digits

_ROW_PX: Final = 36
_COLUMN_PX: Final = 92
_HEAD_LINE_PX: Final = 15
_COLUMN_ROOM: Final = 13
_LETTER_PX: Final = 6.6
_NARROW_ROOM: Final = 24  # enough for the name of a pass, which comes last
_HALF_WIDTH: Final = 0.49
_HALF_HEIGHT: Final = 0.47


def heat_plot(heat_map: HeatMap) -> Plot:
    heads = [wrapped_name(column, _COLUMN_ROOM) for column in heat_map.columns]
    head_px = max(map(len, heads)) * _HEAD_LINE_PX + 10
    names = labels(heat_map.rows, LABEL_ROOM)
    cells = tuple(_cells(heat_map))
    return Plot(
        title=heat_map.title,
        keys=keys(heat_map, lambda _: ()),
        drawing=Drawing(
            groups=(
                tuple(_box(heat_map, row, column, cell) for row, column, cell in cells),
                tuple(_words(row, column, cell) for row, column, cell in cells),
                tuple(_frame(row, column) for row, column, cell in cells if cell.marked),
            ),
            x=Ruler(
                low=-0.5,
                high=len(heads) - 0.5,
                at=tuple(float(at) for at in range(len(heads))),
                texts=tuple(lines(*head) for head in heads),
                grid=False,
                on_top=True,
            ),
            y=rows_ruler(len(names)),
            margin=Margin(top=head_px, bottom=6, left=0, right=8),
            height_px=len(names) * _ROW_PX + head_px + 6,
            least_px=int(max(len(name) for (name,) in names) * _LETTER_PX + len(heads) * _COLUMN_PX),
            labels=names,
            narrow_labels=labels(heat_map.rows, _NARROW_ROOM),
        ),
    )


def _cells(heat_map: HeatMap) -> Iterator[tuple[int, int, Cell]]:
    for row, cells in enumerate(heat_map.cells):
        for column, cell in enumerate(cells):
            yield row, column, cell


def _box(heat_map: HeatMap, row: int, column: int, cell: Cell) -> Box:
    return Box(
        x0=column - _HALF_WIDTH,
        x1=column + _HALF_WIDTH,
        y0=row - _HALF_HEIGHT,
        y1=row + _HALF_HEIGHT,
        colour=_colour(cell),
        told=_tooltip(heat_map, row, column, cell),
    )


def _frame(row: int, column: int) -> Box:
    return Box(x0=column - 0.47, x1=column + 0.47, y0=row - 0.44, y1=row + 0.44, colour=FRAME, style="framed")


def _words(row: int, column: int, cell: Cell) -> Words:
    """Return the text of a cell, in a colour with contrast; a letter if there is no time."""
    face = "italic" if isinstance(cell.ratio, Absent) else "bold" if cell.ratio == 1 else "plain"
    return Words(x=column, y=row, lines=lines(*cell.text), side="center", colour=readable_on(_colour(cell)), face=face)


def _colour(cell: Cell) -> str:
    return NOTHING if isinstance(cell.ratio, Absent) else heat(cell.ratio)


def _tooltip(heat_map: HeatMap, row: int, column: int, cell: Cell) -> Texts:
    if isinstance(cell.ratio, Absent):
        words = (cell.ratio.reason,)
    else:
        words = (*cell.text, f"{digits(cell.ratio)} {heat_map.ratio_means}")
    marked = heat_map.marked_means if cell.marked else ""
    return lines(heat_map.rows[row], heat_map.columns[column], *words, marked)
