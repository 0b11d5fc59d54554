"""What a figure shows, without saying who draws it: numbers in SI units, words, and colours by meaning.

Two drawers read this, so a figure is written once and looks the same in a paper and in a browser.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from deepstone.absent import Absent
from deepstone.errors import UsageError
from deepstone.results.quantity import Quantity


class NothingToDrawError(UsageError):
    """A result lacks what a figure would show; the message says what, and how to get it."""


class Unit(Enum):
    """What a number counts; the value is its name in JSON."""

    SECONDS = "s"
    BYTES = "bytes"
    FLOPS_PER_S = "flop/s"
    FLOPS_PER_BYTE = "flop/byte"
    BYTES_PER_S = "bytes/s"
    SAMPLES_PER_S = "images/s"  # as people read it
    OTHER_SAMPLES_PER_S = "samples/s"  # where some samples are no images
    RATIO = "ratio"
    SHARE = "share"
    YEAR = "year"
    GIGAFLOPS = "gflop"
    RELATIVE_ERROR = "relative error"
    NUMBER = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
    """A number, with its 95 % interval and how many samples or rounds it comes from, where it has them.

    `no_interval` says why what was measured has none; a sum or what others published never has one.
    """

    middle: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    no_interval: str = ""


def value_of(measured: Quantity | float | Absent | None) -> Value | Absent:
    """What a result holds as it is drawn; None is what early results lack."""
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
    """What others published is drawn hollow, what was measured is filled."""

    name: str
    colour: str
    published: bool = False
    marker: Marker = "circle"


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A piece of a bar; `series` is a position in the panel's list, `details` more lines for who points at it."""

    series: int
    value: Value
    details: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class BarLabel:
    """Words beside a bar. A gap is a bar that could not be measured: its words say why."""

    text: str
    details: tuple[str, ...] = ()
    gap: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class BarRow:
    """A name and the bars beside it, one below the other. The segments of one bar are stacked from 0.

    The note stands behind the longest bar, `bar_labels` behind each: none, or one for every bar.
    """

    label: str
    bars: tuple[tuple[Segment, ...], ...]
    note: str = ""
    bar_labels: tuple[BarLabel, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class BarChart:
    """Horizontal bars. Every row has room for as many bars as the row with the most.

    On a logarithmic axis a length means nothing, so there the ends are drawn, as points. `reference` is a line across.
    """

    title: str
    axis: Axis
    series: tuple[Series, ...]
    rows: tuple[BarRow, ...]
    reference: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """Through these points from left to right, with its name above the last one."""

    label: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """`label` stands beside it; `weight` says how much it matters, for the case that there is no room for every label.

    `details` are more lines for who points at it. The line of a chart leads past a point that is `apart`.
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
    """The points of a series, and places that could not be measured, with the reason."""

    series: Series
    points: tuple[Point, ...]
    gaps: tuple[tuple[float, str], ...] = ()


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
    """Lines from point to point. `names` are those of places 0, 1, 2 … where the horizontal axis counts no number."""

    curves: tuple[PointGroup, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """`ratio` is how many times worse than the best of its row, or why that is not known; `text` stands in it."""

    ratio: float | Absent
    text: tuple[str, ...]
    marked: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class HeatMap:
    """Rows by columns. `marked_means` tells what a frame around a cell means."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]
    ratio_means: str
    marked_means: str


Panel: TypeAlias = BarChart | LineChart | ScatterPlot | HeatMap


@dataclass(frozen=True, kw_only=True, slots=True)
class IntervalOf:
    """The interval of a number, or why it has none, in a column of its own."""

    value: Value


# A number is in the unit of its column; None is an empty cell.
TableCell: TypeAlias = str | int | float | Value | IntervalOf | Absent | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """Of names where it has no unit, else of numbers."""

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
    """Panels one below the other. `commands` give the numbers again; `doubts` are reasons to trust them less.

    `model` is empty where a figure is about several.
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
