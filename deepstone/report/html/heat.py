"""Heat maps for plotly."""

from __future__ import annotations

import math
from typing import Final

from deepstone.absent import Absent
from deepstone.report.figure import Cell, HeatMap
from deepstone.report.html.plot import LABEL_ROOM, Plot, PlotlyObject, keys, labels, lines, scatter
from deepstone.report.palette import FRAME, HEAT, HEAT_ENDS_AT, NOTHING, heat, readable_on
from deepstone.report.wording import wrapped_name
from deepstone.units import digits

_ROW_PX: Final = 36
_COLUMN_PX: Final = 92
_HEAD_LINE_PX: Final = 15
_COLUMN_ROOM: Final = 13
_LETTER_PX: Final = 6.6
_NARROW_ROOM: Final = 24  # enough for the name of a pass, which comes last


def heat_plot(heat_map: HeatMap) -> Plot:
    heads = [wrapped_name(column, _COLUMN_ROOM) for column in heat_map.columns]
    head_px = max(map(len, heads)) * _HEAD_LINE_PX + 10
    names = labels(heat_map.rows, LABEL_ROOM)
    least = int(max(map(len, names)) * _LETTER_PX + len(heads) * _COLUMN_PX)
    return Plot(
        title=heat_map.title,
        traces=(_timed(heat_map), _empty(heat_map), _texts(heat_map)),
        layout={
            "margin": {"t": head_px, "b": 6, "r": 8},
            "xaxis": {
                "range": [-0.5, len(heads) - 0.5],
                "side": "top",
                "tickvals": list(range(len(heads))),
                "ticktext": [lines(*head) for head in heads],
                "tickangle": 0,
                "tickfont": {"size": 11},
                "showgrid": False,
            },
            "yaxis": {
                "range": [len(names) - 0.5, -0.5],
                "tickvals": list(range(len(names))),
                "showgrid": False,
            },
            "shapes": _frames(heat_map),
        },
        keys=keys(heat_map, lambda _: ()),
        height_px=len(names) * _ROW_PX + head_px + 6,
        least_px=least,
        labels=names,
        narrow_labels=labels(heat_map.rows, _NARROW_ROOM),
    )


def _timed(heat_map: HeatMap) -> PlotlyObject:
    """Gaps where there is no time."""
    scale = [[at / (len(HEAT) - 1), colour] for at, colour in enumerate(HEAT)]
    return {
        **_base(heat_map),
        "z": [
            [None if isinstance(cell.ratio, Absent) else math.log(cell.ratio) for cell in row] for row in heat_map.cells
        ],
        "zmin": 0.0,
        "zmax": math.log(HEAT_ENDS_AT),
        "colorscale": scale,
    }


def _empty(heat_map: HeatMap) -> PlotlyObject:
    """Where there is no time."""
    return {
        **_base(heat_map),
        "z": [[0.0 if isinstance(cell.ratio, Absent) else None for cell in row] for row in heat_map.cells],
        "zmin": 0.0,
        "zmax": 1.0,
        "colorscale": [[0, NOTHING], [1, NOTHING]],
    }


def _texts(heat_map: HeatMap) -> PlotlyObject:
    """Over the cells, in whatever can be read on their colour; a letter where there is no time."""
    cells = [(column, row, cell) for row, cells in enumerate(heat_map.cells) for column, cell in enumerate(cells)]
    return scatter(
        [column for column, _, _ in cells],
        [row for _, row, _ in cells],
        "text",
        None,
        meta="own colours",
        text=[_words(cell) for _, _, cell in cells],
        textfont={"size": 11, "color": [readable_on(_colour(cell)) for _, _, cell in cells]},
    )


def _words(cell: Cell) -> str:
    if isinstance(cell.ratio, Absent):
        return f"<i>{lines(*cell.text)}</i>"
    return f"<b>{lines(*cell.text)}</b>" if cell.ratio == 1 else lines(*cell.text)


def _colour(cell: Cell) -> str:
    return NOTHING if isinstance(cell.ratio, Absent) else heat(cell.ratio)


def _base(heat_map: HeatMap) -> PlotlyObject:
    return {
        "type": "heatmap",
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "hovertext": [
            [_told(heat_map, row, column) for column in range(len(heat_map.columns))]
            for row in range(len(heat_map.rows))
        ],
        "hoverinfo": "text",
        "hoverongaps": False,
    }


def _told(heat_map: HeatMap, row: int, column: int) -> str:
    cell = heat_map.cells[row][column]
    if isinstance(cell.ratio, Absent):
        words = (cell.ratio.reason,)
    else:
        words = (*cell.text, f"{digits(cell.ratio)} {heat_map.ratio_means}")
    marked = heat_map.marked_means if cell.marked else ""
    return lines(heat_map.rows[row], heat_map.columns[column], *words, marked)


def _frames(heat_map: HeatMap) -> list[PlotlyObject]:
    return [
        {
            "type": "rect",
            "x0": column - 0.47,
            "x1": column + 0.47,
            "y0": row - 0.44,
            "y1": row + 0.44,
            "line": {"color": FRAME, "width": 2.5},
        }
        for row, cells in enumerate(heat_map.cells)
        for column, cell in enumerate(cells)
        if cell.marked
    ]
