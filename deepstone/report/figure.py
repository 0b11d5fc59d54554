"""What a figure shows, without saying who draws it: numbers in SI units, words, and colours by meaning.

Two drawers read this, so a figure is written once and looks the same in a paper and in a browser.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from deepstone.absent import Absent
from deepstone.errors import UsageError


class NothingToDrawError(UsageError):
    """A result lacks what a figure would show; the message says what, and how to get it."""


class Unit(Enum):
    SECONDS = "s"
    BYTES = "B"
    FLOPS_PER_S = "FLOP/s"
    FLOPS_PER_BYTE = "FLOP/byte"
    BYTES_PER_S = "B/s"
    IMAGES_PER_S = "images/s"
    RATIO = "×"
    SHARE = "%"
    YEAR = "year"
    NUMBER = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
    """A number, with its 95 % interval and how many samples or rounds it comes from, where it has them."""

    middle: float
    low: float | None = None
    high: float | None = None
    n: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    label: str
    unit: Unit
    log: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One entry of a legend. What others published is drawn hollow, what was measured is filled."""

    name: str
    colour: str
    published: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A piece of a bar; `series` is a position in the panel's list, `told` more lines for who points at it."""

    series: int
    value: Value
    told: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """Words beside a bar. A gap is a bar that could not be measured: its words say why."""

    text: str
    told: tuple[str, ...] = ()
    gap: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class BarRow:
    """A name and the bars beside it, one below the other. The segments of one bar are stacked from 0.

    The note stands behind the longest bar, marks behind each: none, or one for every bar.
    """

    label: str
    bars: tuple[tuple[Segment, ...], ...]
    note: str = ""
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Bars:
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
    """`weight` says how much it matters, for the case that there is no room for every label."""

    label: str
    x: float
    y: Value
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Cloud:
    series: Series
    marker: str
    points: tuple[Point, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plane:
    """Points and lines between two axes."""

    title: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    clouds: tuple[Cloud, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """A measured point of a curve; `told` are more lines for who points at it, `label` stands beside it.

    The line leads past a stop that is `apart`.
    """

    x: float
    y: Value
    told: tuple[str, ...] = ()
    doubtful: bool = False
    label: str = ""
    apart: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Hole:
    """A place of a curve that could not be measured, and why."""

    x: float
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    series: Series
    stops: tuple[Stop, ...]
    holes: tuple[Hole, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Curves:
    """Lines from stop to stop. `names` are those of places 0, 1, 2 … where the horizontal axis counts no number."""

    title: str
    x: Axis
    y: Axis
    curves: tuple[Curve, ...]
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


Panel: TypeAlias = Bars | Curves | Plane | HeatMap


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The numbers behind a figure, as text; the first `words` columns are names, all others numbers.

    `runs` are the ids of the runs behind each row: none, or as many lists as there are rows.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1
    runs: tuple[tuple[str, ...], ...] = ()


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
