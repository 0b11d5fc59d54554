"""Numbers with their unit and interval, and the tables of them that stand behind a figure."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.results.quantity import Quantity


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


class Value(Struct, frozen=True, kw_only=True):
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


class IntervalOf(Struct, frozen=True, kw_only=True):
    """The interval of a number, or the reason why it has none, in a separate column."""

    value: Value


# A number is in the unit of its column; None is an empty cell.
TableCell: TypeAlias = str | int | float | Value | IntervalOf | Absent | None


class Column(Struct, frozen=True, kw_only=True):
    """A column of a table: of names if it has no unit, else of numbers."""

    heading: str
    unit: Unit | None = None


class Table(Struct, frozen=True, kw_only=True):
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
