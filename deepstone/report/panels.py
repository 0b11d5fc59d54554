"""The panels of a figure, independent of their renderer: numbers in SI units, text, and colours by meaning."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.report.table import Unit, Value

Marker: TypeAlias = Literal["circle", "diamond"]


class Axis(Struct, frozen=True, kw_only=True):
    label: str
    unit: Unit
    log: bool = False


class Series(Struct, frozen=True, kw_only=True):
    """A series. Published numbers are drawn hollow, measured ones filled."""

    name: str
    colour: str
    published: bool = False
    marker: Marker = "circle"


class Segment(Struct, frozen=True, kw_only=True):
    """A part of a bar. `series` is an index into the panel's list; `details` are further lines of its tooltip."""

    series: int
    value: Value
    details: tuple[str, ...] = ()


class BarLabel(Struct, frozen=True, kw_only=True):
    """Text beside a bar. A gap is a bar that could not be measured; its text is the reason."""

    text: str
    details: tuple[str, ...] = ()
    gap: bool = False


class BarRow(Struct, frozen=True, kw_only=True):
    """A name and its bars, one below the other. The segments of one bar are stacked from 0.

    The note follows the longest bar. `bar_labels` follow their bars: none, or one for every bar.
    """

    label: str
    bars: tuple[tuple[Segment, ...], ...]
    note: str = ""
    bar_labels: tuple[BarLabel, ...] = ()


class _Titled(Struct, frozen=True, kw_only=True):
    title: str


class _AlongAxis(_Titled, frozen=True, kw_only=True):
    axis: Axis
    series: tuple[Series, ...]


class BarChart(_AlongAxis, frozen=True, kw_only=True):
    """Horizontal bars. Every row has room for as many bars as the row with the most.

    A length has no meaning on a logarithmic axis, so only the ends are drawn there, as points. `reference` is a line
    across.
    """

    rows: tuple[BarRow, ...]
    reference: float | None = None


class TimeSpan(Struct, frozen=True, kw_only=True):
    """What happened from `start` to `end`. `series` is an index into the panel's list; `details` are lines of its
    tooltip, `label` a text in it if there is room. `whisker`: between which places its end lies."""

    series: int
    start: float
    end: float
    label: str = ""
    details: tuple[str, ...] = ()
    whisker: tuple[float, float] | None = None


class Lane(Struct, frozen=True, kw_only=True):
    """A name and what happened in it. Spans of one track follow each other; tracks lie one below the other."""

    label: str
    tracks: tuple[tuple[TimeSpan, ...], ...]


class LaneChart(_AlongAxis, frozen=True, kw_only=True):
    """Lanes along one axis: of time, or of what adds up from lane to lane. On a logarithmic axis it multiplies."""

    lanes: tuple[Lane, ...]


class Line(Struct, frozen=True, kw_only=True):
    """A line through these points from left to right, with its name above the last one."""

    label: str
    points: tuple[tuple[float, float], ...]


class Point(Struct, frozen=True, kw_only=True):
    """A point with a label beside it. `weight` is its importance if there is no room for every label.

    `details` are further lines of its tooltip. The line of a chart skips a point that is `apart`.
    """

    x: float
    y: Value
    label: str = ""
    details: tuple[str, ...] = ()
    doubtful: bool = False
    apart: bool = False
    weight: float = 0.0


class PointGroup(Struct, frozen=True, kw_only=True):
    """The points of a series, and its gaps with their reasons; where there are many, these are not written beside
    them."""

    series: Series
    points: tuple[Point, ...]
    gaps: tuple[tuple[float, str], ...] = ()
    gap_words: bool = True


class _Plane(_Titled, frozen=True, kw_only=True):
    x: Axis
    y: Axis


class ScatterPlot(_Plane, frozen=True, kw_only=True):
    """Points and lines between two axes."""

    lines: tuple[Line, ...]
    groups: tuple[PointGroup, ...]


class LineChart(_Plane, frozen=True, kw_only=True):
    """Lines from point to point. `names` label the places 0, 1, 2 … if the horizontal axis has no numbers."""

    curves: tuple[PointGroup, ...]
    names: tuple[str, ...] = ()


class Cell(Struct, frozen=True, kw_only=True):
    """A cell with a text. `ratio` is its value over the best of its row, or the reason why that is unknown."""

    ratio: float | Absent
    text: tuple[str, ...]
    marked: bool = False


class HeatMap(_Titled, frozen=True, kw_only=True):
    """Cells in rows and columns. `marked_means` explains the frame around a cell."""

    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]
    ratio_means: str
    marked_means: str


class Upright(Struct, frozen=True, kw_only=True):
    """An upright axis of a parallel plot: its name, and texts at places from 0 (below) to 1."""

    name: str
    ticks: tuple[tuple[float, str], ...]


class Strand(Struct, frozen=True, kw_only=True):
    """A line across all upright axes: its place on each, None where it has none, and there it ends."""

    places: tuple[float | None, ...]
    details: tuple[str, ...] = ()

    @property
    def pieces(self) -> list[tuple[tuple[float, float], ...]]:
        """The points of the line, in a piece for each stretch of axes on which it has a place."""
        found: list[list[tuple[float, float]]] = [[]]
        for at, place in enumerate(self.places):
            if place is None:
                found.append([])
            else:
                found[-1].append((float(at), place))
        return [tuple(piece) for piece in found if piece]


class ParallelPlot(_Titled, frozen=True, kw_only=True):
    """Parallel coordinates: upright axes side by side, and a line across them for each setup. Later series are drawn
    above earlier ones."""

    axes: tuple[Upright, ...]
    series: tuple[Series, ...]
    strands: tuple[tuple[Strand, ...], ...]  # of each series


Panel: TypeAlias = BarChart | LaneChart | LineChart | ScatterPlot | ParallelPlot | HeatMap
