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


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
    """A number, with its 95 % interval where it has one."""

    middle: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    label: str
    unit: Unit
    log: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One entry of a legend."""

    name: str
    colour: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A piece of a bar; `series` is a position in the panel's list."""

    series: int
    value: Value


@dataclass(frozen=True, kw_only=True, slots=True)
class BarRow:
    """A name and the bars beside it, one below the other. The segments of one bar are stacked from 0."""

    label: str
    bars: tuple[tuple[Segment, ...], ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bars:
    """Horizontal bars. Every row has room for as many bars as the row with the most."""

    title: str
    axis: Axis
    series: tuple[Series, ...]
    rows: tuple[BarRow, ...]


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


Panel: TypeAlias = Bars | Plane | HeatMap


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The numbers behind a figure, as text; the first `words` columns are names, all others numbers."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """Panels one below the other. `commands` give the numbers again; `doubts` are reasons to trust them less."""

    name: str
    model: str
    title: str
    subtitle: str
    panels: tuple[Panel, ...]
    caption: tuple[str, ...]
    table: Table
    commands: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
