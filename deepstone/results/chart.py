"""A chart as data: series of points, and gaps."""

from __future__ import annotations

from functools import partial
from typing import Final, Literal, TypeAlias

from deepstone.results.parts import Number, OrAbsent, Part
from deepstone.results.quantity import Quantity

ChartForm: TypeAlias = Literal["bars", "lines", "ratios"]
ChartScale: TypeAlias = Literal["category", "linear", "log"]


class ChartPoint(Part, frozen=True, kw_only=True):
    """`label` is the text at the point; the line of its series skips points that are `apart`."""

    x: str | int | float
    y: OrAbsent[Quantity | Number]
    runs: list[str] | None = None
    doubts: list[str] | None = None
    label: str | None = None
    apart: bool | None = None


class ChartSeries(Part, frozen=True, kw_only=True):
    """`panel`: the part of the figure that shows it, if there are several."""

    name: str
    points: list[ChartPoint]
    published: bool | None = None
    panel: str | None = None


class ChartGap(Part, frozen=True, kw_only=True):
    x: str | int | float
    series: str | None = None
    why: str | None = None
    panel: str | None = None


class ChartAxis(Part, frozen=True, kw_only=True):
    label: str | None = None
    scale: ChartScale | None = None
    unit: str | None = None


class Chart(Part, frozen=True, kw_only=True):
    schema: Literal[1]
    kind: Literal["chart"]
    title: str
    x: ChartAxis
    y: ChartAxis
    series: list[ChartSeries]
    name: str | None = None
    subtitle: str | None = None
    form: ChartForm | None = None
    gaps: list[ChartGap] | None = None
    caption: list[str] | None = None
    commands: list[str] | None = None


new_chart: Final = partial(Chart, schema=1, kind="chart")
