"""A chart prepared for drawing: with units; numbers that do not fit the axis become gaps."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.errors import RefusedInputError
from deepstone.report.figure import NothingToDrawError
from deepstone.report.table import Unit, Value, value_of
from deepstone.results.chart import Chart, ChartForm, ChartGap, ChartPoint, ChartScale, ChartSeries
from deepstone.units import digits

_Y_UNITS: Final = (
    Unit.SAMPLES_PER_S,
    Unit.OTHER_SAMPLES_PER_S,
    Unit.SECONDS,
    Unit.BYTES,
    Unit.BYTES_PER_S,
    Unit.RATIO,
    Unit.SHARE,
    Unit.FLOPS_PER_S,
)
_UNITS: Final = {unit.value: unit for unit in _Y_UNITS}
_X_UNITS: Final = {"": Unit.NUMBER, "year": Unit.YEAR}
_POINTS_AT_MOST: Final = 5000  # more are not readable, and would stop a browser
_PANELS_AT_MOST: Final = 12
_PUBLISHED: Final = "published"


class PlottedPoint(Struct, frozen=True, kw_only=True):
    """A point. `x` is a number on a numeric axis, else a name. `label` is beside it; the line skips a point that is
    apart."""

    x: str | float
    y: Value
    runs: tuple[str, ...]
    doubts: tuple[str, ...]
    label: str = ""
    apart: bool = False


class PlottedSeries(Struct, frozen=True, kw_only=True):
    """A series. `panel` is the name of its part of the figure, if there are several."""

    name: str
    published: bool
    points: tuple[PlottedPoint, ...]
    panel: str = ""

    @property
    def label(self) -> str:
        return f"{self.name}, published" if self.published and _PUBLISHED not in self.name.lower() else self.name


class PlottedGap(Struct, frozen=True, kw_only=True):
    series: str
    x: str | float
    why: str
    panel: str = ""


class Plotted(Struct, frozen=True, kw_only=True):
    """A prepared chart. `chart` is its origin, with titles and labels."""

    chart: Chart
    form: ChartForm
    x_scale: ChartScale
    x_unit: Unit
    y_unit: Unit
    y_log: bool
    series: tuple[PlottedSeries, ...]
    gaps: tuple[PlottedGap, ...]

    @property
    def x_label(self) -> str:
        return self.chart.x.label or ""

    @property
    def y_label(self) -> str:
        return self.chart.y.label or ""

    @property
    def places(self) -> tuple[str | float, ...]:
        """Return every x once: numbers in order, names by first appearance."""
        found = [point.x for series in self.series for point in series.points]
        known = tuple(dict.fromkeys([*found, *(gap.x for gap in self.gaps)]))
        return known if self.x_scale == "category" else tuple(sorted(known, key=float))

    @property
    def panels(self) -> tuple[str, ...]:
        """Return the names of its panels by first appearance; one empty name if there is only one panel."""
        return tuple(dict.fromkeys(part.panel for part in (*self.series, *self.gaps)))

    def of_panel(self, name: str) -> Plotted:
        """Return the content of that panel."""
        return replace(
            self,
            series=tuple(series for series in self.series if series.panel == name),
            gaps=tuple(gap for gap in self.gaps if gap.panel == name),
        )


def unit_named(name: str) -> Unit:
    """Return the unit with this name in JSON; a plain number for any other name."""
    return _UNITS.get(name, Unit.NUMBER)


def check_chart(chart: Chart) -> None:
    """Raise RefusedInputError for a chart that no axis can show. A chart without numbers is valid."""
    try:
        plotted(chart)
    except NothingToDrawError:
        return


def plotted(chart: Chart) -> Plotted:
    x_scale, form = chart.x.scale or "category", chart.form or "bars"
    y_log = form == "ratios" or chart.y.scale == "log"
    numeric = x_scale != "category" and form == "lines"
    _check(chart, numeric=numeric, log_x=x_scale == "log")
    gaps = [_gap(gap) for gap in chart.gaps or ()]
    series, beyond = _placed([_series(each) for each in chart.series], log=y_log)
    if not any(each.points for each in series):
        reason = f": {gaps[0].why}" if gaps else ""
        raise NothingToDrawError(f"this chart has no number to draw{reason}")
    return Plotted(
        chart=chart,
        form=form,
        x_scale=x_scale if numeric else "category",
        x_unit=_X_UNITS[chart.x.unit or ""] if numeric and x_scale == "linear" else Unit.NUMBER,
        y_unit=unit_named(chart.y.unit or ""),
        y_log=y_log,
        series=tuple(series),
        gaps=(*gaps, *beyond),
    )


def _check(chart: Chart, *, numeric: bool, log_x: bool) -> None:
    gaps = chart.gaps or ()
    if sum(len(series.points) for series in chart.series) + len(gaps) > _POINTS_AT_MOST:
        raise RefusedInputError(f"series: must hold at most {_POINTS_AT_MOST:,} points")
    if len({part.panel or "" for part in (*chart.series, *gaps)}) > _PANELS_AT_MOST:
        raise RefusedInputError(f"series: must be in at most {_PANELS_AT_MOST} panels")
    if chart.y.unit and chart.y.unit not in _UNITS:
        raise RefusedInputError(f"y.unit: must be one of {', '.join(_UNITS)}, not {chart.y.unit[:40]!r}")
    if numeric and chart.x.unit not in (None, *_X_UNITS):
        raise RefusedInputError(f"x.unit: must be one of {', '.join(_X_UNITS)}, not {chart.x.unit[:40]!r}")
    places = [
        (f"series[{at}].points[{number}]", point.x)
        for at, series in enumerate(chart.series)
        for number, point in enumerate(series.points)
    ]
    for where, x in [*places, *((f"gaps[{at}]", gap.x) for at, gap in enumerate(gaps))] if numeric else ():
        if isinstance(x, str):
            raise RefusedInputError(f"{where}.x: must be a finite number, not {x[:40]!r}")
        if log_x and x <= 0:
            raise RefusedInputError(f"{where}.x: must be a number above 0, since the axis is logarithmic, not {x}")


def _series(series: ChartSeries) -> PlottedSeries:
    points = [_point(point) for point in series.points]
    return PlottedSeries(
        name=series.name,
        published=bool(series.published),
        points=tuple(point for point in points if point is not None),
        panel=series.panel or "",
    )


def _point(point: ChartPoint) -> PlottedPoint | None:
    """Return the point, or None if its value is absent; a gap shows it then."""
    y = value_of(point.y)
    if isinstance(y, Absent):
        return None
    return PlottedPoint(
        x=_x(point.x),
        y=y,
        runs=tuple(point.runs or ()),
        doubts=tuple(point.doubts or ()),
        label=point.label or "",
        apart=bool(point.apart),
    )


def _x(x: str | float) -> str | float:
    return x if isinstance(x, str) else float(x)


def _gap(gap: ChartGap) -> PlottedGap:
    return PlottedGap(series=gap.series or "", x=_x(gap.x), why=gap.why or "not measured", panel=gap.panel or "")


def _placed(found: list[PlottedSeries], *, log: bool) -> tuple[list[PlottedSeries], list[PlottedGap]]:
    """Turn numbers that a logarithmic axis cannot show, those not above 0, into gaps."""
    if not log:
        return found, []
    beyond = [
        PlottedGap(
            series=series.name,
            x=point.x,
            why=f"{digits(point.y.middle)} has no place on a logarithmic axis",
            panel=series.panel,
        )
        for series in found
        for point in series.points
        if point.y.middle <= 0
    ]
    above = [replace(series, points=tuple(point for point in series.points if point.y.middle > 0)) for series in found]
    return above, beyond
