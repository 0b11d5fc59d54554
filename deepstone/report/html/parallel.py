"""Parallel coordinates for the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deepstone.report.html.plot import FAINT, INK, Dot, Drawing, Margin, Mark, Path, Plot, Ruler, Words, keys, lines
from deepstone.report.legend import used_series
from deepstone.report.panels import Marker, ParallelPlot, Series, Strand
from deepstone.report.wording import shortened

_HEIGHT_PX: Final = 380
_LEAST_AXIS_PX: Final = 92  # of width for each axis; a narrower window is scrolled
_TICK_ROOM: Final = 14
_NAME_ROOM: Final = 13
_BESIDE_PX: Final = 5.0
_WIDTHS_PX: Final[Mapping[Marker, float]] = {"diamond": 2.6, "circle": 1.2}


def parallel_plot(plot: ParallelPlot) -> Plot:
    used = used_series(plot)
    last = len(plot.axes) - 1
    groups = tuple(
        tuple(mark for strand in plot.strands[at] for mark in _marks(plot.series[at], strand)) for at in used
    )
    return Plot(
        title=plot.title,
        keys=keys(plot, lambda place: (1 + place,)),
        drawing=Drawing(
            groups=(_upright(plot), *groups, _texts(plot)),
            x=Ruler(
                low=-0.15,
                high=last + 0.75,
                at=tuple(float(at) for at in range(last + 1)),
                texts=tuple((shortened(axis.name, _NAME_ROOM),) for axis in plot.axes),
                grid=False,
                on_top=True,
            ),
            y=Ruler(low=-0.04, high=1.04, grid=False),
            margin=Margin(top=30, bottom=14, left=34, right=10),
            height_px=_HEIGHT_PX,
            least_px=_LEAST_AXIS_PX * len(plot.axes),
        ),
    )


def _upright(plot: ParallelPlot) -> tuple[Mark, ...]:
    return tuple(
        Path(points=((at, 0.0), (at, 1.0)), colour=FAINT, width_px=1.2) for at in map(float, range(len(plot.axes)))
    )


def _texts(plot: ParallelPlot) -> tuple[Mark, ...]:
    """The values, right of their axis and above all lines."""
    return tuple(
        Words(x=float(at), y=place, lines=(shortened(text, _TICK_ROOM),), shift=(_BESIDE_PX, 0.0), colour=INK)
        for at, axis in enumerate(plot.axes)
        for place, text in axis.ticks
    )


def _marks(series: Series, strand: Strand) -> tuple[Mark, ...]:
    """The line, and a dot on each axis that tells of it."""
    width = _WIDTHS_PX[series.marker]
    paths = tuple(
        Path(points=piece, colour=series.colour, width_px=width, dashed=series.published)
        for piece in strand.pieces
        if len(piece) > 1
    )
    told = lines(series.name, *strand.details)
    dots = tuple(Dot.of(series, x, y, told, size_px=6) for piece in strand.pieces for x, y in piece)
    return (*paths, *dots)
