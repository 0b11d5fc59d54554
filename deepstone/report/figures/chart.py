"""A chart of numbers from several runs, in one of three forms: bars, lines, or ratios around 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from deepstone.records.schema import DOUBT_CODES
from deepstone.report.amounts import SHOWN
from deepstone.report.chart_data import Chart, ChartPoint, ChartSeries, Gap, read_chart
from deepstone.report.figure import (
    Axis,
    BarRow,
    Bars,
    Curve,
    Curves,
    Figure,
    Hole,
    Mark,
    Panel,
    Segment,
    Series,
    Stop,
    Table,
    Unit,
)
from deepstone.report.figures.years import PlacesWithinYears, places_within_years
from deepstone.report.palette import hue, paler
from deepstone.report.reading import Node
from deepstone.units import digits

_HUES: Final = 6
_DOUBTFUL: Final = "†"
_RUNS_TOLD: Final = 3


def chart(result: Node) -> Figure:
    return chart_with_setups(result, {})


def chart_with_setups(result: Node, setups: Mapping[str, str]) -> Figure:
    """`setups` tells of runs, by id, how they were set up; of those not in it only the id is told."""
    read = read_chart(result)
    return Figure(
        name=read.name,
        model="",
        title=read.title,
        subtitle=read.subtitle,
        panels=tuple(_panels(read, setups)),
        caption=(*read.caption, *_side_by_side(read), *_doubtful(read)),
        table=_table(read),
        commands=read.commands,
        doubts=_doubts(read),
    )


def _panels(chart: Chart, setups: Mapping[str, str]) -> Iterator[Panel]:
    """One name has one colour in all of them, and one place within a year."""
    colours, places = _colours(chart), places_within_years(chart)
    for name in chart.panels:
        part = chart.of_panel(name)
        if any(series.points for series in part.series):
            title = _panel_title(chart, name)
            if chart.form == "lines":
                yield _curves(part, setups, title, colours, places)
            else:
                yield _bars(part, setups, title, colours)


def _panel_title(chart: Chart, panel: str) -> str:
    words = " by ".join(label for label in (chart.y_label, chart.x_label) if label) or chart.title
    words = f"{panel}: {words}" if panel else words
    return f"{words[:1].upper()}{words[1:]}"


def _colours(chart: Chart) -> dict[str, str]:
    """What is published has the colour of what was measured under the same name."""
    colours: dict[str, str] = {}
    for each in sorted(chart.series, key=lambda series: series.published):
        place = len(colours)
        colour = hue(place) if place < _HUES else paler(hue(place))
        colours.setdefault(_bare(each.name), colour)
    return colours


def _legend(chart: Chart, colours: Mapping[str, str]) -> list[Series]:
    return [
        Series(name=each.label, colour=colours[_bare(each.name)], published=each.published) for each in chart.series
    ]


def _bare(name: str) -> str:
    return name.lower().replace("published", "").strip(" ,()")


def _bars(chart: Chart, setups: Mapping[str, str], title: str, colours: Mapping[str, str]) -> Bars:
    rows = [_row(chart, place, setups) for place in chart.places]
    return Bars(
        title=title,
        axis=Axis(label=chart.y_label, unit=chart.y_unit, log=chart.y_log),
        series=tuple(_legend(chart, colours)),
        rows=tuple(rows),
        reference=1.0 if chart.form == "ratios" else None,
    )


def _row(chart: Chart, place: str | float, setups: Mapping[str, str]) -> BarRow:
    """One slot for every series that has, or should have, a number here."""
    bars: list[tuple[Segment, ...]] = []
    marks: list[Mark] = []
    for at, series in enumerate(chart.series):
        point = next((point for point in series.points if point.x == place), None)
        gap = next((gap for gap in _gaps_of(chart, series) if gap.x == place), None)
        if point is not None:
            bars.append((Segment(series=at, value=point.y, told=_told(point, setups)),))
            marks.append(Mark(text=_beside(chart, point)))
        elif gap is not None:
            bars.append(())
            marks.append(Mark(text=_why(chart, series, gap), told=(f"{series.label}: no number", gap.why), gap=True))
    return BarRow(label=_place_name(place), bars=tuple(bars), marks=tuple(marks))


def _gaps_of(chart: Chart, series: ChartSeries) -> list[Gap]:
    """Of what was to be measured; what others published has none."""
    return [] if series.published else [gap for gap in chart.gaps if gap.series in ("", series.name)]


def _why(chart: Chart, series: ChartSeries, gap: Gap) -> str:
    return gap.why if len(chart.series) == 1 else f"{series.label}: {gap.why}"


def _beside(chart: Chart, point: ChartPoint) -> str:
    """The number, short; its unit stands at the axis."""
    unit = chart.y_unit
    words = digits(point.y.middle) if unit is Unit.IMAGES_PER_S else SHOWN[unit](point.y.middle)
    return f"{words} {_DOUBTFUL}" if point.doubts else words


def _told(point: ChartPoint, setups: Mapping[str, str]) -> tuple[str, ...]:
    known = list(dict.fromkeys(setups[run] for run in point.runs if run in setups))
    lines = known[:_RUNS_TOLD]
    lines += [f"n = {point.y.n}"] if point.y.n is not None else []
    lines += [f"doubts: {', '.join(point.doubts)}"] if point.doubts else []
    lines += [f"runs: {', '.join(point.runs[:_RUNS_TOLD])}{_more(point.runs)}"] if point.runs else []
    return tuple(lines)


def _more(runs: Sequence[str]) -> str:
    return f" and {len(runs) - _RUNS_TOLD} more" if len(runs) > _RUNS_TOLD else ""


def _curves(
    chart: Chart, setups: Mapping[str, str], title: str, colours: Mapping[str, str], places: PlacesWithinYears
) -> Curves:
    named = chart.x_scale == "category"
    at: dict[str | float, float] = {place: float(number) for number, place in enumerate(chart.places)}
    where = at if named else {place: float(place) for place in chart.places}
    return Curves(
        title=title,
        x=Axis(label=chart.x_label, unit=chart.x_unit, log=chart.x_scale == "log"),
        y=Axis(label=chart.y_label, unit=chart.y_unit, log=chart.y_log),
        curves=tuple(
            Curve(
                series=legend,
                stops=tuple(
                    Stop(
                        x=where[point.x] + places.beside_its_year(series, point),
                        y=point.y,
                        told=_told(point, setups),
                        doubtful=bool(point.doubts),
                        label=point.label,
                        apart=point.apart,
                    )
                    for point in sorted(series.points, key=lambda point: where[point.x])
                ),
                holes=tuple(Hole(x=where[gap.x], why=gap.why) for gap in _gaps_of(chart, series)),
            )
            for legend, series in zip(_legend(chart, colours), chart.series, strict=True)
        ),
        names=tuple(_place_name(place) for place in chart.places) if named else (),
    )


def _place_name(place: str | float) -> str:
    if isinstance(place, str):
        return place
    return f"{place:,.0f}" if place == int(place) else digits(place)


def _side_by_side(chart: Chart) -> list[str]:
    if not places_within_years(chart).shared:
        return []
    return ["What was released in one year stands side by side; places within a year mean nothing."]


def _doubtful(chart: Chart) -> list[str]:
    if not any(point.doubts for series in chart.series for point in series.points):
        return []
    return [f"{_DOUBTFUL} marks numbers about which there are doubts; the table names them."]


def _doubts(chart: Chart) -> tuple[str, ...]:
    """Each code once, with its meaning and how many numbers it is about."""
    counts: dict[str, int] = {}
    for series in chart.series:
        for point in series.points:
            for code in point.doubts:
                counts[code] = counts.get(code, 0) + 1
    meanings = {code: DOUBT_CODES.get(code, "no more is known") for code in counts}
    return tuple(f"{code}: {meanings[code]} ({_numbers(count)})" for code, count in counts.items())


def _row_name(series: ChartSeries, point: ChartPoint) -> str:
    return ", ".join(part for part in (point.label or series.label, series.panel) if part)


def _x_name(chart: Chart, place: str | float) -> str:
    return f"{place:.0f}" if chart.x_unit is Unit.YEAR and not isinstance(place, str) else _place_name(place)


def _numbers(count: int) -> str:
    return "1 of these numbers" if count == 1 else f"{count} of these numbers"


def _table(chart: Chart) -> Table:
    """Every number with its interval, then what there is no number of."""
    shown = SHOWN[chart.y_unit]
    rows: list[tuple[str, ...]] = []
    runs: list[tuple[str, ...]] = []
    for series in chart.series:
        for point in series.points:
            low, high = point.y.low, point.y.high
            interval = f"{shown(low)} – {shown(high)}" if low is not None and high is not None else ""
            n = "" if point.y.n is None else f"{point.y.n:,}"
            head = (_row_name(series, point), _x_name(chart, point.x), ", ".join(point.doubts))
            rows.append((*head, shown(point.y.middle), interval, n))
            runs.append(point.runs)
    for gap in chart.gaps:
        name = ", ".join(part for part in (gap.series, gap.panel) if part)
        rows.append((name, _x_name(chart, gap.x), f"no number: {gap.why}", "", "", ""))
        runs.append(())
    headings = ("series", chart.x_label or "x", "doubts", chart.y_label or "y", "95 % interval", "n")
    return Table(headings=headings, rows=tuple(rows), words=3, runs=tuple(runs) if any(runs) else ())
