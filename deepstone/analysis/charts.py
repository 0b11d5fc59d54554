"""From records to the data of figures: the ones that a study asks for, and those that any bag of records gives."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from deepstone.absent import Absent
from deepstone.analysis.cases import cases
from deepstone.analysis.chart_points import FRAMEWORK, shown_points
from deepstone.analysis.default_figures import default_figures
from deepstone.analysis.drawn import Drawn
from deepstone.analysis.figure_request import MODEL, SETTING, YEAR, FigureRequest, read_figure
from deepstone.analysis.measures import measure_named
from deepstone.analysis.one_factor import Star, stars
from deepstone.analysis.ratio_rows import ratio_rows
from deepstone.analysis.year_points import without_year, year_points
from deepstone.records.schema import Record
from deepstone.setups.axes import AXES, Value

SCHEMA: Final = 1
MOST_POINTS: Final = 2000  # more than a figure can show; those beyond are counted in the caption
MOST_COMMANDS: Final = 100
_LOG_FROM: Final = 50.0  # a span beyond which small values would vanish on a linear axis


def chart(
    figure: Mapping[str, Any], records: Iterable[Record], base: Mapping[str, Value] | None = None
) -> dict[str, Any] | Absent:
    """The data of one figure of a study. UsageError where the entry is wrong, absent where no record fits it."""
    return _chart(read_figure(figure), stars(cases(records), base))


def charts(
    figures: Iterable[Mapping[str, Any]], records: Iterable[Record], base: Mapping[str, Value] | None = None
) -> list[dict[str, Any]]:
    """All figures of a study that its records can fill so far."""
    return _filled(figures, stars(cases(records), base))


def default_charts(records: Iterable[Record], base: Mapping[str, Value] | None = None) -> list[dict[str, Any]]:
    """What a report shows of records that no study asked for: each kind of figure that they can fill."""
    found = stars(cases(records), base)
    return _filled(default_figures(found), found)


def _filled(figures: Iterable[Mapping[str, Any]], found: Sequence[Star]) -> list[dict[str, Any]]:
    drawn = [_chart(read_figure(figure), found) for figure in figures]
    return [data for data in drawn if not isinstance(data, Absent)]


def _chart(request: FigureRequest, found: Sequence[Star]) -> dict[str, Any] | Absent:
    models = request.filters.get(MODEL)
    wanted = [star for star in found if models is None or star.model in models]
    drawn = _drawn(request, wanted)
    points = [one for one in drawn if not isinstance(one.y, Absent)]
    gaps = [(one, one.y.reason) for one in drawn if isinstance(one.y, Absent)]
    if not points:
        return Absent(f"nothing was measured: {gaps[0][1]}" if gaps else _why_empty(request, wanted))
    if request.form != "ratios" and request.x in AXES and len({one.x for one in drawn}) == 1:
        return Absent(f"only {request.x}={drawn[0].x} was measured, so there is nothing to hold it against")
    shown = points[:MOST_POINTS]
    records = {record["id"]: record for star in wanted for case in star.all for record in case.good}
    used = [records[run] for one in shown for run in one.runs]
    return {
        "schema": SCHEMA,
        "kind": "chart",
        "name": request.name,
        "title": request.title,
        "subtitle": request.subtitle,
        "form": request.form,
        "x": _x(request, shown),
        "y": _y(request, shown),
        "series": _series(shown),
        "gaps": [one.gap(why) for one, why in gaps[:MOST_POINTS]],
        "caption": [
            *_caption(request, wanted, used),
            *_years(request, wanted),
            *_unseen(shown, gaps),
            *_left_out(len(points)),
        ],
        "commands": _commands(request, used)[:MOST_COMMANDS],
    }


def _commands(request: FigureRequest, used: Sequence[Record]) -> list[str]:
    """Each once. Those of a figure of frameworks differ in the framework alone, and one command takes several."""
    if request.x not in (YEAR, FRAMEWORK):
        return list(dict.fromkeys(shlex.join(record["command"]) for record in used))
    frameworks: dict[tuple[str, ...], dict[str, None]] = {}
    for record in used:
        words = tuple("framework=" if word.startswith("framework=") else word for word in record["command"])
        named = [word.partition("=")[2] for word in record["command"] if word.startswith("framework=")]
        frameworks.setdefault(words, {}).update(dict.fromkeys(named))
    return [
        shlex.join([word + ",".join(named) if word == "framework=" else word for word in words])
        for words, named in frameworks.items()
    ]


def _drawn(request: FigureRequest, found: Sequence[Star]) -> list[Drawn]:
    if request.form == "ratios":
        return ratio_rows(request, found)
    return year_points(request, found) if request.x == YEAR else shown_points(request, found)


def _why_empty(request: FigureRequest, found: Sequence[Star]) -> str:
    return " ".join(_years(request, found)) or "no run fits this figure"


def _series(points: Sequence[Drawn]) -> list[dict[str, Any]]:
    by_name: dict[tuple[str, str], list[Drawn]] = {}
    for one in points:
        by_name.setdefault((one.panel, one.series), []).append(one)
    return [
        {
            "name": name,
            "published": False,
            "points": [one.point() for one in _ordered(several)],
            **({"panel": panel} if panel else {}),
        }
        for (panel, name), several in by_name.items()
    ]


def _ordered(points: list[Drawn]) -> list[Drawn]:
    """Along x where x is a number, as they came where it is a name. Versions of one year follow each other."""
    if all(isinstance(one.x, int) for one in points):
        oldest_first = points[::-1]  # frameworks come with the newest version first
        return sorted(oldest_first, key=lambda one: (int(one.x), one.apart))
    return points


def _x(request: FigureRequest, points: Sequence[Drawn]) -> dict[str, str]:
    if request.x == YEAR:
        return {"label": "year of release", "scale": "linear", "unit": YEAR}
    return {"label": _x_label(request), "scale": _x_scale(request, points)}


def _x_label(request: FigureRequest) -> str:
    return {"batch": "batch size", MODEL: "network", SETTING: "setting"}.get(request.x, request.x)


def _x_scale(request: FigureRequest, points: Sequence[Drawn]) -> str:
    numbers = [one.x for one in points if isinstance(one.x, int)]
    if len(numbers) < len(points) or request.form != "lines":
        return "category"
    if request.scale:
        return request.scale
    return "log" if min(numbers) > 0 and max(numbers) >= 4 * min(numbers) else "linear"


def _y(request: FigureRequest, points: Sequence[Drawn]) -> dict[str, str]:
    if request.form == "ratios":
        return {"label": "speed against the base", "unit": "ratio", "scale": "log"}
    measure = measure_named(request.y)
    medians = [one.y.median for one in points if not isinstance(one.y, Absent)]
    wide = min(medians) > 0 and max(medians) > _LOG_FROM * min(medians)
    return {"label": measure.label, "unit": measure.unit, "scale": "log" if wide else "linear"}


def _caption(request: FigureRequest, found: Sequence[Star], used: Sequence[Record]) -> list[str]:
    shown = {record["id"] for record in used}
    bases = "; ".join(dict.fromkeys(_base_in_words(request, star) for star in found if shown & set(star.base.runs)))
    if request.form == "ratios":
        return [
            "Images per second over those of the base: paired within rounds of fresh processes where both ran in "
            "rounds, otherwise measured apart.",
            "Whiskers are 95 % intervals; where one reaches 1, no difference is shown.",
            f"The base: {bases}.",
        ]
    rounds = any(record["identity"]["repetition"] > 1 for record in used)
    across = "across rounds in fresh processes where there are several" if rounds else "each within its own process"
    return [f"Medians with 95 % intervals, {across}.", f"What the figure does not name is as in the base: {bases}."]


def _base_in_words(request: FigureRequest, star: Star) -> str:
    """As one would type it: the network, the batch, and what is not at its default, but for what a figure of frameworks
    shows anyway."""
    told = request.named if request.x in (YEAR, FRAMEWORK) else frozenset[str]()
    asked = star.base.record["setup"]["requested"]
    words = [
        f"{axis}={value}"
        for axis, value in asked.items()
        if axis not in told and (axis == "batch" or (axis in AXES and value != AXES[axis].default))
    ]
    return " ".join([star.model, *words])


def _years(request: FigureRequest, found: Sequence[Star]) -> list[str]:
    """Who is missing from a figure by years, by name."""
    missing = without_year(request, found) if request.x == YEAR else {}
    return [f"Left out: {', '.join(names)} ({reason})." for reason, names in missing.items()]


def _unseen(shown: Sequence[Drawn], gaps: Sequence[tuple[Drawn, str]]) -> list[str]:
    """Those with a name that nothing in the figure tells of: a gap is drawn only beside points of its own series."""
    seen = {(one.panel, one.series) for one in shown}
    return [one.gap(why)["why"] for one, why in gaps if one.label and (one.panel, one.series) not in seen]


def _left_out(points: int) -> list[str]:
    return [f"{points - MOST_POINTS} further points are not drawn."] if points > MOST_POINTS else []
