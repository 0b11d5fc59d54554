"""Builds the data of figures from records: those that a study requests, and default ones for any records."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from deepstone.absent import Absent
from deepstone.analysis.cases import cases, measure_named
from deepstone.analysis.chart_points import FRAMEWORK, SeriesPoint, chart_points, without_year
from deepstone.analysis.facts import machine_key, year_of
from deepstone.analysis.figure_request import MODEL, SETTING, YEAR, FigureRequest, read_figure
from deepstone.analysis.one_factor import Star, stars
from deepstone.results.chart import Chart, ChartAxis, ChartScale, ChartSeries, new_chart
from deepstone.results.record import Record
from deepstone.results.searched import NO_SEARCHES, Searched
from deepstone.setups.axes import AXES, Value

MOST_POINTS: Final = 2000  # more than a figure can show; those beyond are counted in the caption
MOST_COMMANDS: Final = 100
_LOG_FROM: Final = 50.0  # a span beyond which small values would vanish on a linear axis


def chart(
    figure: Mapping[str, object], records: Iterable[Record], base: Mapping[str, Value] | None = None
) -> Chart | Absent:
    """Return the data of one figure of a study, absent if no record fits. Raises UsageError if the entry is invalid."""
    return _chart(read_figure(figure), stars(cases(records), base))


def charts(
    figures: Iterable[Mapping[str, object]],
    records: Iterable[Record],
    base: Mapping[str, Value] | None = None,
    searched: Searched = NO_SEARCHES,
) -> list[Chart]:
    """Return all figures of a study for which there are records. `searched`: as for `cases`."""
    return _filled(figures, stars(cases(records, searched), base))


def default_charts(
    records: Iterable[Record],
    base: Mapping[str, Value] | None = None,
    searched: Searched = NO_SEARCHES,
) -> list[Chart]:
    """Return the charts of a report without a study: each kind of figure for which there are records."""
    found = stars(cases(records, searched), base)
    return _filled(_default_figures(found), found)


def _default_figures(found: Sequence[Star]) -> Iterator[dict[str, object]]:
    """Yield entries as in a study file: speeds, effects of settings, frameworks, years, batch sizes."""
    several_machines = len({machine_key(star.base.record) for star in found}) > 1
    series = ["machine", "phase"] if several_machines else "phase"
    yield {"name": "speed", "title": "Images per second", "form": "bars", "x": "model", "series": series}
    if any(star.settings() for star in found):
        yield {"name": "settings", "title": "What each setting changes", "form": "ratios"}
    if any(not star.is_main for star in found):
        title = "Framework against framework"
        yield {"name": "frameworks", "title": title, "form": "bars", "x": "model", "series": "framework"}
    if len({year for star in found if isinstance(year := year_of(star.base.record), int)}) > 1:
        title = "Images per second by year of release"
        yield {"name": "years", "title": title, "form": "lines", "x": "year", "panels": "phase"}
    for model in dict.fromkeys(star.model for star in found if star.along("batch")):
        title, only = f"Batch sizes of {model}", {"model": model}
        yield {"name": f"batch-{model}", "title": title, "form": "lines", "x": "batch", "filters": only}


def _filled(figures: Iterable[Mapping[str, object]], found: Sequence[Star]) -> list[Chart]:
    filled = [_chart(read_figure(figure), found) for figure in figures]
    return [data for data in filled if not isinstance(data, Absent)]


def _chart(request: FigureRequest, found: Sequence[Star]) -> Chart | Absent:
    models = request.filters.get(MODEL)
    shown_stars = [star for star in found if models is None or star.model in models]
    every = chart_points(request, shown_stars)
    points = [one for one in every if not isinstance(one.y, Absent)]
    gaps = [(one, one.y.reason) for one in every if isinstance(one.y, Absent)]
    if not points:
        return Absent(f"nothing was measured: {gaps[0][1]}" if gaps else _why_empty(request, shown_stars))
    if request.form != "ratios" and request.x in AXES and len({one.x for one in every}) == 1:
        return Absent(f"only {request.x}={every[0].x} was measured, so there is nothing to hold it against")
    shown = points[:MOST_POINTS]
    records = {record.id: record for star in shown_stars for case in star.all for record in case.good}
    used = [records[run] for one in shown for run in one.runs]
    return new_chart(
        name=request.name,
        title=request.title,
        subtitle=request.subtitle,
        form=request.form,
        x=_x(request, shown),
        y=_y(request, shown, used),
        series=_series(shown),
        gaps=[one.gap(why) for one, why in gaps[:MOST_POINTS]],
        caption=[
            *_caption(request, shown_stars, used),
            *_years(request, shown_stars),
            *_hidden_gaps(shown, gaps),
            *_left_out(len(points)),
        ],
        commands=_commands(request, used)[:MOST_COMMANDS],
    )


def _commands(request: FigureRequest, used: Sequence[Record]) -> list[str]:
    """Return each command once. Commands that differ only in the framework are merged into one."""
    if request.x not in (YEAR, FRAMEWORK):
        return list(dict.fromkeys(shlex.join(record.command) for record in used))
    frameworks: dict[tuple[str, ...], dict[str, None]] = {}
    for record in used:
        words = tuple("framework=" if word.startswith("framework=") else word for word in record.command)
        named = [word.partition("=")[2] for word in record.command if word.startswith("framework=")]
        frameworks.setdefault(words, {}).update(dict.fromkeys(named))
    return [
        shlex.join([word + ",".join(named) if word == "framework=" else word for word in words])
        for words, named in frameworks.items()
    ]


def _why_empty(request: FigureRequest, found: Sequence[Star]) -> str:
    return " ".join(_years(request, found)) or "no run fits this figure"


def _series(points: Sequence[SeriesPoint]) -> list[ChartSeries]:
    by_name: dict[tuple[str, str], list[SeriesPoint]] = {}
    for one in points:
        by_name.setdefault((one.panel, one.series), []).append(one)
    return [
        ChartSeries(name=name, published=False, points=[one.point() for one in _ordered(several)], panel=panel or None)
        for (panel, name), several in by_name.items()
    ]


def _ordered(points: list[SeriesPoint]) -> list[SeriesPoint]:
    """Sort by x if it is a number; keep the order if it is a name. Versions of one year follow each other."""
    if all(isinstance(one.x, int) for one in points):
        oldest_first = points[::-1]  # frameworks come with the newest version first
        return sorted(oldest_first, key=lambda one: (int(one.x), one.apart))
    return points


def _x(request: FigureRequest, points: Sequence[SeriesPoint]) -> ChartAxis:
    if request.x == YEAR:
        return ChartAxis(label="year of release", scale="linear", unit=YEAR)
    return ChartAxis(label=_x_label(request), scale=_x_scale(request, points))


def _x_label(request: FigureRequest) -> str:
    return {"batch": "batch size", MODEL: "network", SETTING: "setting"}.get(request.x, request.x)


def _x_scale(request: FigureRequest, points: Sequence[SeriesPoint]) -> ChartScale:
    numbers = [one.x for one in points if isinstance(one.x, int)]
    if len(numbers) < len(points) or request.form != "lines":
        return "category"
    if request.scale:
        return request.scale
    return "log" if min(numbers) > 0 and max(numbers) >= 4 * min(numbers) else "linear"


def _y(request: FigureRequest, points: Sequence[SeriesPoint], used: Sequence[Record]) -> ChartAxis:
    if request.form == "ratios":
        return ChartAxis(label="speed against the base", unit="ratio", scale="log")
    measure = measure_named(request.y)
    label, unit = measure.label, measure.unit
    if unit == "images/s" and any(record.workload.sample for record in used):
        label, unit = "samples per second", "samples/s"
    medians = [one.y.median for one in points if not isinstance(one.y, Absent)]
    wide = min(medians) > 0 and max(medians) > _LOG_FROM * min(medians)
    return ChartAxis(label=label, unit=unit, scale="log" if wide else "linear")


def _caption(request: FigureRequest, found: Sequence[Star], used: Sequence[Record]) -> list[str]:
    shown = {record.id for record in used}
    bases = "; ".join(dict.fromkeys(_base_in_words(request, star) for star in found if shown & set(star.base.runs)))
    if request.form == "ratios":
        return [
            "Images per second over those of the base: paired within rounds of fresh processes where both ran in "
            "rounds, otherwise measured apart.",
            "Whiskers are 95 % intervals; where one reaches 1, no difference is shown.",
            f"The base: {bases}.",
        ]
    rounds = any(record.identity.repetition > 1 for record in used)
    across = "across rounds in fresh processes where there are several" if rounds else "each within its own process"
    if rounds and any(record.is_look for record in used):  # a search repeats looks that are in no round
        across = "across fresh processes where there are several"
    return [f"Medians with 95 % intervals, {across}.", f"What the figure does not name is as in the base: {bases}."]


def _base_in_words(request: FigureRequest, star: Star) -> str:
    """Return the base as a command has it: the network, the batch, and values that are not defaults, except those that
    a figure of frameworks shows anyway."""
    shown = request.named if request.x in (YEAR, FRAMEWORK) else frozenset[str]()
    requested = star.base.record.setup.requested
    words = [
        f"{axis}={value}"
        for axis, value in requested.items()
        if axis not in shown and (axis == "batch" or (axis in AXES and value != AXES[axis].default))
    ]
    return " ".join([star.model, *words])


def _years(request: FigureRequest, found: Sequence[Star]) -> list[str]:
    """Name the cases that are missing from a figure by years."""
    missing = without_year(request, found) if request.x == YEAR else {}
    return [f"Left out: {', '.join(names)} ({reason})." for reason, names in missing.items()]


def _hidden_gaps(shown: Sequence[SeriesPoint], gaps: Sequence[tuple[SeriesPoint, str]]) -> list[str]:
    """List labelled gaps that the figure does not show: a gap appears only next to points of its own series."""
    visible = {(one.panel, one.series) for one in shown}
    return [f"{one.label}: {why}" for one, why in gaps if one.label and (one.panel, one.series) not in visible]


def _left_out(points: int) -> list[str]:
    return [f"{points - MOST_POINTS} further points are not drawn."] if points > MOST_POINTS else []
