"""A chart of numbers from several runs, in one of three forms: bars, lines, or ratios around 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from deepstone.report.figure import Figure
from deepstone.report.figures.captions import cut_whiskers, missing_whiskers
from deepstone.report.figures.chart_data import Plotted, PlottedGap, PlottedPoint, PlottedSeries, plotted
from deepstone.report.palette import hue, paler
from deepstone.report.panels import (
    Axis,
    BarChart,
    BarLabel,
    BarRow,
    LineChart,
    Panel,
    Point,
    PointGroup,
    Segment,
    Series,
)
from deepstone.report.table import Column, IntervalOf, Table, TableCell, Unit, number_columns
from deepstone.report.wording import SHOWN, is_resolved
from deepstone.results.chart import Chart
from deepstone.results.doubt import DOUBT_CODES
from deepstone.units import digits

_HUES: Final = 6
_DOUBTFUL: Final = "†"
_RUNS_LISTED: Final = 3
_RATES: Final = (Unit.SAMPLES_PER_S, Unit.OTHER_SAMPLES_PER_S)
_BESIDE: Final = 0.2  # years between neighbours
_WIDEST: Final = 0.7  # years that those of one year may take


def chart(chart: Chart, setups: Mapping[str, str] | None = None) -> Figure:
    """Make the figure of a chart. `setups` describes runs by id; for other runs only the id is shown."""
    plot = plotted(chart)
    panels = tuple(_panels(plot, setups or {}))
    return Figure(
        name=chart.name or "chart",
        model="",
        title=chart.title,
        subtitle=chart.subtitle or "",
        panels=panels,
        caption=(
            *(chart.caption or ()),
            *_side_by_side(plot),
            *missing_whiskers(panels),
            *cut_whiskers(panels),
            *_doubtful(plot),
        ),
        table=_table(plot),
        commands=tuple(chart.commands or ()),
        doubts=_doubts(plot),
    )


def _panels(chart: Plotted, setups: Mapping[str, str]) -> Iterator[Panel]:
    """Make the panels. A name has the same colour in all of them, and the same place within a year."""
    colours, places = _colours(chart), places_within_years(chart)
    for name in chart.panels:
        part = chart.of_panel(name)
        if any(series.points for series in part.series):
            title = _panel_title(chart, name)
            if chart.form == "lines":
                yield _curves(part, setups, title, colours, places)
            else:
                yield _bars(part, setups, title, colours)


def _panel_title(chart: Plotted, panel: str) -> str:
    words = " by ".join(label for label in (chart.y_label, chart.x_label) if label) or chart.chart.title
    words = f"{panel}: {words}" if panel else words
    return f"{words[:1].upper()}{words[1:]}"


def _colours(chart: Plotted) -> dict[str, str]:
    """Return the colours. A published series has the colour of the measured one of the same name."""
    colours: dict[str, str] = {}
    for each in sorted(chart.series, key=lambda series: series.published):
        place = len(colours)
        colour = hue(place) if place < _HUES else paler(hue(place))
        colours.setdefault(_bare(each.name), colour)
    return colours


def _legend(chart: Plotted, colours: Mapping[str, str]) -> list[Series]:
    return [
        Series(
            name=each.label,
            colour=colours[_bare(each.name)],
            published=each.published,
            marker="diamond" if each.published else "circle",
        )
        for each in chart.series
    ]


def _bare(name: str) -> str:
    return name.lower().replace("published", "").strip(" ,()")


def _bars(chart: Plotted, setups: Mapping[str, str], title: str, colours: Mapping[str, str]) -> BarChart:
    rows = [_row(chart, place, setups) for place in chart.places]
    return BarChart(
        title=title,
        axis=Axis(label=chart.y_label, unit=chart.y_unit, log=chart.y_log),
        series=tuple(_legend(chart, colours)),
        rows=tuple(rows),
        reference=1.0 if chart.form == "ratios" else None,
    )


def _row(chart: Plotted, place: str | float, setups: Mapping[str, str]) -> BarRow:
    """Make a row with one slot for every series that has, or should have, a number here."""
    bars: list[tuple[Segment, ...]] = []
    bar_labels: list[BarLabel] = []
    for at, series in enumerate(chart.series):
        point = next((point for point in series.points if point.x == place), None)
        gap = next((gap for gap in _gaps_of(chart, series) if gap.x == place), None)
        if point is not None:
            bars.append((Segment(series=at, value=point.y, details=_details(point, setups)),))
            bar_labels.append(BarLabel(text=_beside(chart, point)))
        elif gap is not None:
            bars.append(())
            bar_labels.append(
                BarLabel(text=_why(chart, series, gap), details=(f"{series.label}: no number", gap.why), gap=True)
            )
    return BarRow(label=_place_name(place), bars=tuple(bars), bar_labels=tuple(bar_labels))


def _gaps_of(chart: Plotted, series: PlottedSeries) -> list[PlottedGap]:
    """Return the gaps of measured series; published ones have none."""
    return [] if series.published else [gap for gap in chart.gaps if gap.series in ("", series.name)]


def _why(chart: Plotted, series: PlottedSeries, gap: PlottedGap) -> str:
    return gap.why if len(chart.series) == 1 else f"{series.label}: {gap.why}"


def _beside(chart: Plotted, point: PlottedPoint) -> str:
    """Return the number in short form; the axis has its unit."""
    unit = chart.y_unit
    if unit is Unit.SECONDS and not is_resolved(point.y):
        return f"not resolved {_DOUBTFUL}" if point.doubts else "not resolved"
    words = digits(point.y.middle) if unit in _RATES else SHOWN[unit](point.y.middle)
    return f"{words} {_DOUBTFUL}" if point.doubts else words


def _details(point: PlottedPoint, setups: Mapping[str, str]) -> tuple[str, ...]:
    known = list(dict.fromkeys(setups[run] for run in point.runs if run in setups))
    lines = known[:_RUNS_LISTED]
    lines += [f"n = {point.y.n}"] if point.y.n is not None else []
    lines += [f"doubts: {', '.join(point.doubts)}"] if point.doubts else []
    lines += [f"runs: {', '.join(point.runs[:_RUNS_LISTED])}{_more(point.runs)}"] if point.runs else []
    return tuple(lines)


def _more(runs: Sequence[str]) -> str:
    return f" and {len(runs) - _RUNS_LISTED} more" if len(runs) > _RUNS_LISTED else ""


def _curves(
    chart: Plotted, setups: Mapping[str, str], title: str, colours: Mapping[str, str], places: PlacesWithinYears
) -> LineChart:
    named = chart.x_scale == "category"
    at: dict[str | float, float] = {place: float(number) for number, place in enumerate(chart.places)}
    where = at if named else {place: float(place) for place in chart.places}
    return LineChart(
        title=title,
        x=Axis(label=chart.x_label, unit=chart.x_unit, log=chart.x_scale == "log"),
        y=Axis(label=chart.y_label, unit=chart.y_unit, log=chart.y_log),
        curves=tuple(
            PointGroup(
                series=legend,
                points=tuple(
                    Point(
                        x=where[point.x] + places.beside_its_year(series, point),
                        y=point.y,
                        details=_details(point, setups),
                        doubtful=bool(point.doubts),
                        label=point.label,
                        apart=point.apart,
                    )
                    for point in sorted(series.points, key=lambda point: where[point.x])
                ),
                gaps=tuple((where[gap.x], gap.why) for gap in _gaps_of(chart, series)),
            )
            for legend, series in zip(_legend(chart, colours), chart.series, strict=True)
        ),
        names=tuple(_place_name(place) for place in chart.places) if named else (),
    )


def _place_name(place: str | float) -> str:
    if isinstance(place, str):
        return place
    return f"{place:,.0f}" if place == int(place) else digits(place)


def _side_by_side(chart: Plotted) -> list[str]:
    if not places_within_years(chart).shared:
        return []
    return ["What was released in one year stands side by side; places within a year mean nothing."]


def _doubtful(chart: Plotted) -> list[str]:
    if not any(point.doubts for series in chart.series for point in series.points):
        return []
    return [f"{_DOUBTFUL} marks numbers about which there are doubts; the table names them."]


def _doubts(chart: Plotted) -> tuple[str, ...]:
    """Return each doubt once, with its meaning and its count of numbers."""
    counts: dict[str, int] = {}
    for series in chart.series:
        for point in series.points:
            for code in point.doubts:
                counts[code] = counts.get(code, 0) + 1
    meanings = {code: DOUBT_CODES.get(code, "no more is known") for code in counts}
    return tuple(f"{code}: {meanings[code]} ({_numbers(count)})" for code, count in counts.items())


def _row_name(series: PlottedSeries, point: PlottedPoint) -> str:
    return ", ".join(part for part in (point.label or series.label, series.panel) if part)


def _x_cell(chart: Plotted, place: str | float) -> str | int | float:
    """Return whole numbers as int, except years, which are shown without commas."""
    if isinstance(place, str) or chart.x_unit is Unit.YEAR or place != int(place):
        return place
    return int(place)


def _numbers(count: int) -> str:
    return "1 of these numbers" if count == 1 else f"{count} of these numbers"


def _table(chart: Plotted) -> Table:
    """Make the table: every number with its interval, then the gaps."""
    rows: list[tuple[TableCell, ...]] = []
    runs: list[tuple[str, ...]] = []
    for series in chart.series:
        for point in series.points:
            head = (_row_name(series, point), _x_cell(chart, point.x), ", ".join(point.doubts))
            rows.append((*head, point.y.middle, IntervalOf(value=point.y), point.y.n))
            runs.append(point.runs)
    for gap in chart.gaps:
        name = ", ".join(part for part in (gap.series, gap.panel) if part)
        rows.append((name, _x_cell(chart, gap.x), f"no number: {gap.why}", None, None, None))
        runs.append(())
    columns = (
        Column(heading="series"),
        Column(heading=chart.x_label or "x", unit=None if chart.x_scale == "category" else chart.x_unit),
        Column(heading="doubts"),
        *number_columns(chart.y_unit, chart.y_label or "y", "95 % interval"),
        *number_columns(Unit.NUMBER, "n"),
    )
    return Table(columns=columns, rows=tuple(rows), runs=tuple(runs) if any(runs) else ())


class PlacesWithinYears(Struct, frozen=True, kw_only=True):
    """Places of points within a year: `offsets` in years, by year, series and label."""

    offsets: Mapping[tuple[str | float, str, str], float]

    @property
    def shared(self) -> bool:
        """Whether a year has several points."""
        return any(self.offsets.values())

    def beside_its_year(self, series: PlottedSeries, point: PlottedPoint) -> float:
        return self.offsets.get((point.x, series.name, point.label), 0.0)


def places_within_years(chart: Plotted) -> PlacesWithinYears:
    """Return the places within years; none if the axis does not count years."""
    if chart.x_unit is not Unit.YEAR:
        return PlacesWithinYears(offsets={})
    by_year: dict[str | float, dict[tuple[str | float, str, str], None]] = {}
    for series in chart.series:
        for point in series.points:
            by_year.setdefault(point.x, {})[point.x, series.name, point.label] = None
    offsets: dict[tuple[str | float, str, str], float] = {}
    for several in by_year.values():
        step = min(_BESIDE, _WIDEST / max(1, len(several) - 1))
        for place, key in enumerate(several):
            offsets[key] = (place - (len(several) - 1) / 2) * step
    return PlacesWithinYears(offsets=offsets)
