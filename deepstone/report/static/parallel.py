"""Parallel coordinates by matplotlib."""

from __future__ import annotations

from typing import Final

from deepstone.report.panels import ParallelPlot
from deepstone.report.static.sheet import FAINT_INK, INK, LETTER, LINES, MARKERS, SIZE, Sheet
from deepstone.report.wording import shortened

_HEIGHT_IN: Final = 3.6
PARALLEL_HEIGHT_IN: Final = _HEIGHT_IN + 0.45
_LEAST_ROOM: Final = 6


def draw_parallel(sheet: Sheet, plot: ParallelPlot, top_in: float, left_in: float, width_in: float) -> None:
    axes = sheet.axes(left_in + 0.1, top_in + 0.3, width_in - 0.2, _HEIGHT_IN)
    last = len(plot.axes) - 1
    room = max(_LEAST_ROOM, int(width_in / (last + 0.9) / (SIZE * LETTER)) - 1)
    axes.set(xlim=(-0.15, last + 0.75), ylim=(-0.04, 1.04))
    axes.set_axis_off()
    for at, axis in enumerate(plot.axes):
        axes.plot([at, at], [0, 1], color=FAINT_INK, linewidth=1, zorder=1)
        axes.annotate(
            shortened(axis.name, room),
            (at, 1.04),
            (0, 4),
            textcoords="offset points",
            fontsize=SIZE,
            weight="bold",
            color=INK,
            ha="left" if at == 0 else "center",
        )
        for place, text in axis.ticks:
            axes.annotate(
                shortened(text, room),
                (at, place),
                (4, 0),
                textcoords="offset points",
                fontsize=SIZE - 1,
                color=INK,
                va="center",
                zorder=9,
                bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.5},
            )
    for above, (series, strands) in enumerate(zip(plot.series, plot.strands, strict=True), start=2):
        emphasis = series.marker == "diamond"
        for piece in (piece for strand in strands for piece in strand.pieces):
            axes.plot(
                [x for x, _ in piece],
                [y for _, y in piece],
                MARKERS[series.marker],
                linestyle=LINES[series.published],
                color=series.colour,
                markersize=4 if emphasis else 2.5,
                linewidth=2.2 if emphasis else 0.9,
                alpha=1.0 if emphasis else 0.75,
                zorder=above,
            )
