"""The content of a figure, independent of its renderer: numbers in SI units, text, and colours by meaning.

Two renderers read it, so a figure is written once and looks the same in a paper and in a browser.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from deepstone.absent import Absent
from deepstone.errors import UsageError
from deepstone.results.quantity import Quantity


class NothingToDrawError(UsageError):
    """A result lacks the data of a figure; the message says what is missing and how to get it."""


class Unit(Enum):
    """The unit of a number; the value is its name in JSON."""

    SECONDS = "s"
    BYTES = "bytes"
    FLOPS_PER_S = "flop/s"
    FLOPS_PER_BYTE = "flop/byte"
    BYTES_PER_S = "bytes/s"
    SAMPLES_PER_S = "images/s"  # as people read it
    OTHER_SAMPLES_PER_S = "samples/s"  # if some samples are not images
    SAMPLES_PER_J = "images/J"
    OTHER_SAMPLES_PER_J = "samples/J"
    RATIO = "ratio"
    SHARE = "share"
    YEAR = "year"
    GIGAFLOPS = "gflop"
    RELATIVE_ERROR = "relative error"
    NUMBER = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
    """A number, with its 95 % interval and its count of samples or rounds, if it has them.

    `no_interval` is the reason why a measured number has none; sums and published numbers never have one.
    """

    middle: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    no_interval: str = ""


def value_of(measured: Quantity | float | Absent | None) -> Value | Absent:
    """Convert a number of a result; early results may have None."""
    if measured is None:
        return Absent("this result does not tell")
    if isinstance(measured, Absent):
        return measured
    if not isinstance(measured, Quantity):
        return Value(middle=float(measured))
    if measured.no_interval:
        return Value(middle=measured.median, n=measured.n, no_interval=measured.no_interval)
    return Value(middle=measured.median, low=measured.low, high=measured.high, n=measured.n)


Marker: TypeAlias = Literal["circle", "diamond"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    label: str
    unit: Unit
    log: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """A series. Published numbers are drawn hollow, measured ones filled."""

    name: str
    colour: str
    published: bool = False
    marker: Marker = "circle"


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A part of a bar. `series` is an index into the panel's list; `details` are further lines of its tooltip."""

    series: int
    value: Value
    details: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class BarLabel:
    """Text beside a bar. A gap is a bar that could not be measured; its text is the reason."""

    text: str
    details: tuple[str, ...] = ()
    gap: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class BarRow:
    """A name and its bars, one below the other. The segments of one bar are stacked from 0.

    The note follows the longest bar. `bar_labels` follow their bars: none, or one for every bar.
    """

    label: str
    bars: tuple[tuple[Segment, ...], ...]
    note: str = ""
    bar_labels: tuple[BarLabel, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class BarChart:
    """Horizontal bars. Every row has room for as many bars as the row with the most.

    A length has no meaning on a logarithmic axis, so only the ends are drawn there, as points. `reference` is a line
    across.
    """

    title: str
    axis: Axis
    series: tuple[Series, ...]
    rows: tuple[BarRow, ...]
    reference: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeSpan:
    """What happened from `start` to `end`. `series` is an index into the panel's list; `details` are lines of its
    tooltip, `label` a text in it if there is room. `whisker`: between which places its end lies."""

    series: int
    start: float
    end: float
    label: str = ""
    details: tuple[str, ...] = ()
    whisker: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """A name and what happened in it. Spans of one track follow each other; tracks lie one below the other."""

    label: str
    tracks: tuple[tuple[TimeSpan, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneChart:
    """Lanes along one axis: of time, or of what adds up from lane to lane. On a logarithmic axis it multiplies."""

    title: str
    axis: Axis
    series: tuple[Series, ...]
    lanes: tuple[Lane, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A line through these points from left to right, with its name above the last one."""

    label: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class PointGroup:
    """The points of a series, and its gaps with their reasons; where there are many, these are not written beside
    them."""

    series: Series
    points: tuple[Point, ...]
    gaps: tuple[tuple[float, str], ...] = ()
    gap_words: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plane:
    title: str
    x: Axis
    y: Axis


@dataclass(frozen=True, kw_only=True, slots=True)
class ScatterPlot(_Plane):
    """Points and lines between two axes."""

    lines: tuple[Line, ...]
    groups: tuple[PointGroup, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LineChart(_Plane):
    """Lines from point to point. `names` label the places 0, 1, 2 … if the horizontal axis has no numbers."""

    curves: tuple[PointGroup, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A cell with a text. `ratio` is its value over the best of its row, or the reason why that is unknown."""

    ratio: float | Absent
    text: tuple[str, ...]
    marked: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class HeatMap:
    """Cells in rows and columns. `marked_means` explains the frame around a cell."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]
    ratio_means: str
    marked_means: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Upright:
    """An upright axis of a parallel plot: its name, and texts at places from 0 (below) to 1."""

    name: str
    ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Strand:
    """A line across all upright axes: its place on each, None where it has none, and there it ends."""

    places: tuple[float | None, ...]
    details: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelPlot:
    """Parallel coordinates: upright axes side by side, and a line across them for each setup. Later series are drawn
    above earlier ones."""

    title: str
    axes: tuple[Upright, ...]
    series: tuple[Series, ...]
    strands: tuple[tuple[Strand, ...], ...]  # of each series


Panel: TypeAlias = BarChart | LaneChart | LineChart | ScatterPlot | ParallelPlot | HeatMap


@dataclass(frozen=True, kw_only=True, slots=True)
class IntervalOf:
    """The interval of a number, or the reason why it has none, in a separate column."""

    value: Value


# A number is in the unit of its column; None is an empty cell.
TableCell: TypeAlias = str | int | float | Value | IntervalOf | Absent | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column of a table: of names if it has no unit, else of numbers."""

    heading: str
    unit: Unit | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The numbers behind a figure.

    `runs` are the ids of the runs behind each row: none, or as many lists as there are rows.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    runs: tuple[tuple[str, ...], ...] = ()

    @property
    def headings(self) -> tuple[str, ...]:
        return tuple(column.heading for column in self.columns)


def name_columns(*headings: str) -> tuple[Column, ...]:
    return tuple(Column(heading=heading) for heading in headings)


def number_columns(unit: Unit, *headings: str) -> tuple[Column, ...]:
    return tuple(Column(heading=heading, unit=unit) for heading in headings)


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """Panels, one below the other. `commands` reproduce the numbers; `doubts` are reasons to trust them less.

    `model` is empty if a figure shows several.
    """

    name: str
    model: str
    title: str
    subtitle: str
    panels: tuple[Panel, ...]
    caption: tuple[str, ...]
    table: Table
    commands: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        return f"{self.model}: {self.title}" if self.model else self.title
