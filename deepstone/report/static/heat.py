"""Heat maps by matplotlib."""

from __future__ import annotations

from typing import Final

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from deepstone.absent import Absent
from deepstone.report.palette import FRAME, NOTHING, heat, readable_on
from deepstone.report.panels import Cell, HeatMap
from deepstone.report.static.sheet import INK, SIZE, FillStyle, Sheet, frame_style, row_labels
from deepstone.report.wording import wrapped_name

_COLUMN_IN: Final = 0.98
_ROW_IN: Final = 0.34
_HEAD_LINE_IN: Final = 0.135
_CELL_SIZE: Final = 6.8
_COLUMN_ROOM: Final = 14


def heat_width_in(heat_map: HeatMap) -> float:
    return row_labels(heat_map.rows)[1] + len(heat_map.columns) * _COLUMN_IN + 0.1


def heat_height_in(heat_map: HeatMap) -> float:
    return _columns_in(heat_map) + len(heat_map.rows) * _ROW_IN + 0.15


def draw_heat(sheet: Sheet, heat_map: HeatMap, top_in: float, left_in: float) -> None:
    size_in = len(heat_map.columns) * _COLUMN_IN, len(heat_map.rows) * _ROW_IN
    labels, labels_in = row_labels(heat_map.rows)
    axes = sheet.axes(left_in + labels_in, top_in + _columns_in(heat_map), *size_in)
    _draw_frame(axes, heat_map, labels)
    for row, cells in enumerate(heat_map.cells):
        for column, cell in enumerate(cells):
            _draw_cell(axes, column, row, cell)
    for row, cells in enumerate(heat_map.cells):  # frames last, over their neighbours
        for column, cell in enumerate(cells):
            if cell.marked:
                axes.add_patch(_square(column, row, 0.02, frame_style(FRAME)))


def _columns_in(heat_map: HeatMap) -> float:
    """Return the height of the names of columns."""
    return max(len(wrapped_name(column, _COLUMN_ROOM)) for column in heat_map.columns) * _HEAD_LINE_IN + 0.1


def _draw_frame(axes: Axes, heat_map: HeatMap, labels: list[str]) -> None:
    axes.set_xlim(0, len(heat_map.columns))
    axes.set_ylim(len(heat_map.rows), 0)
    heads = ["\n".join(wrapped_name(column, _COLUMN_ROOM)) for column in heat_map.columns]
    axes.set_xticks([at + 0.5 for at in range(len(heads))], labels=heads, fontsize=7.5, color=INK)
    axes.set_yticks([at + 0.5 for at in range(len(heat_map.rows))], labels=labels, fontsize=SIZE, color=INK)
    axes.tick_params(axis="both", length=0, labeltop=True, labelbottom=False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_cell(axes: Axes, column: int, row: int, cell: Cell) -> None:
    missing = isinstance(cell.ratio, Absent)
    colour = NOTHING if isinstance(cell.ratio, Absent) else heat(cell.ratio)
    filled: FillStyle = {"facecolor": colour, "edgecolor": "white", "hatch": None, "linewidth": 1.2}
    axes.add_patch(_square(column, row, 0.0, filled))
    axes.text(
        column + 0.5,
        row + 0.5,
        "\n".join(cell.text),
        fontsize=_CELL_SIZE,
        color=readable_on(colour),
        ha="center",
        va="center",
        linespacing=1.15,
        style="italic" if missing else "normal",
        weight="bold" if not missing and cell.ratio == 1 else "normal",
    )


def _square(column: int, row: int, inset: float, style: FillStyle) -> Rectangle:
    return Rectangle((column + inset, row + inset), 1 - 2 * inset, 1 - 2 * inset, **style)
