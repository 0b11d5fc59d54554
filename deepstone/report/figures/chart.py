"""A chart of numbers from several runs, in one of three forms: bars, lines, or ratios around 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        panels=(_panel(read, setups),),
        caption=(*read.caption, *_doubtful(read)),
        table=_table(read),
        commands=read.commands,
        doubts=_doubts(read),
    )


def _panel(chart: Chart, setups: Mapping[str, str]) -> Panel:
    return _curves(chart, setups) if chart.form == "lines" else _bars(chart, setups)


def _panel_title(chart: Chart) -> str:
    words = " by ".join(label for label in (chart.y_label, chart.x_label) if label) or chart.title
    return f"{words[:1].upper()}{words[1:]}"


def _legend(chart: Chart) -> list[Series]:
    """What is published has the colour of what was measured under the same name."""
    colours: dict[str, str] = {}
    for each in sorted(chart.series, key=lambda series: series.published):
        place = len(colours)
        colour = hue(place) if place < _HUES else paler(hue(place))
        colours.setdefault(_bare(each.name), colour)
    return [
        Series(name=each.label, colour=colours[_bare(each.name)], published=each.published) for each in chart.series
    ]


def _bare(name: str) -> str:
    return name.lower().replace("published", "").strip(" ,()")


def _bars(chart: Chart, setups: Mapping[str, str]) -> Bars:
    rows = [_row(chart, place, setups) for place in chart.places]
    return Bars(
        title=_panel_title(chart),
        axis=Axis(label=chart.y_label, unit=chart.y_unit, log=chart.y_log),
        series=tuple(_legend(chart)),
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


def _curves(chart: Chart, setups: Mapping[str, str]) -> Curves:
    named = chart.x_scale == "category"
    at: dict[str | float, float] = {place: float(number) for number, place in enumerate(chart.places)}
    where = at if named else {place: float(place) for place in chart.places}
    return Curves(
        title=_panel_title(chart),
        x=Axis(label=chart.x_label, unit=Unit.NUMBER, log=chart.x_scale == "log"),
        y=Axis(label=chart.y_label, unit=chart.y_unit, log=chart.y_log),
        curves=tuple(
            Curve(
                series=legend,
                stops=tuple(
                    Stop(x=where[point.x], y=point.y, told=_told(point, setups), doubtful=bool(point.doubts))
                    for point in sorted(series.points, key=lambda point: where[point.x])
                ),
                holes=tuple(Hole(x=where[gap.x], why=gap.why) for gap in _gaps_of(chart, series)),
            )
            for legend, series in zip(_legend(chart), chart.series, strict=True)
        ),
        names=tuple(_place_name(place) for place in chart.places) if named else (),
    )


def _place_name(place: str | float) -> str:
    if isinstance(place, str):
        return place
    return f"{place:,.0f}" if place == int(place) else digits(place)


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
            head = (series.label, _place_name(point.x), ", ".join(point.doubts))
            rows.append((*head, shown(point.y.middle), interval, n))
            runs.append(point.runs)
    for gap in chart.gaps:
        rows.append((gap.series, _place_name(gap.x), f"no number: {gap.why}", "", "", ""))
        runs.append(())
    headings = ("series", chart.x_label or "x", "doubts", chart.y_label or "y", "95 % interval", "n")
    return Table(headings=headings, rows=tuple(rows), words=3, runs=tuple(runs) if any(runs) else ())
