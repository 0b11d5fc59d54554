"""A chart as data, read from JSON that anyone may have written: series of points, and the places without one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from deepstone.absent import Absent
from deepstone.records.shape import as_list, refuse, refuse_because
from deepstone.report.figure import NothingToDrawError, Unit, Value
from deepstone.report.reading import Node
from deepstone.report.wording import LONGEST_SENTENCE, harmless
from deepstone.units import digits

FORMS: Final = ("bars", "lines", "ratios")
_SCALES: Final = ("category", "linear", "log")
_UNITS: Final = {
    "images/s": Unit.IMAGES_PER_S,
    "s": Unit.SECONDS,
    "bytes": Unit.BYTES,
    "bytes/s": Unit.BYTES_PER_S,
    "ratio": Unit.RATIO,
    "share": Unit.SHARE,
    "flop/s": Unit.FLOPS_PER_S,
}
_X_UNITS: Final = {"": Unit.NUMBER, "year": Unit.YEAR}
_POINTS_AT_MOST: Final = 5000  # more are no picture, and a browser would stand still
_PANELS_AT_MOST: Final = 12
_PUBLISHED: Final = "published"


@dataclass(frozen=True, kw_only=True, slots=True)
class ChartPoint:
    """`x` is a number where the axis counts, else a name. `label` stands beside it; a line leads past what is apart."""

    x: str | float
    y: Value
    runs: tuple[str, ...]
    doubts: tuple[str, ...]
    label: str = ""
    apart: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ChartSeries:
    """`panel` is the name of the part of the figure that shows it, where there are several."""

    name: str
    published: bool
    points: tuple[ChartPoint, ...]
    panel: str = ""

    @property
    def label(self) -> str:
        return f"{self.name}, published" if self.published and _PUBLISHED not in self.name.lower() else self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    series: str
    x: str | float
    why: str
    panel: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    name: str
    title: str
    subtitle: str
    form: str
    x_label: str
    x_scale: str
    x_unit: Unit
    y_label: str
    y_unit: Unit
    y_log: bool
    series: tuple[ChartSeries, ...]
    gaps: tuple[Gap, ...]
    caption: tuple[str, ...]
    commands: tuple[str, ...]

    @property
    def places(self) -> tuple[str | float, ...]:
        """Every x once: numbers in order, names as they first come."""
        found = [point.x for series in self.series for point in series.points]
        known = tuple(dict.fromkeys([*found, *(gap.x for gap in self.gaps)]))
        return known if self.x_scale == "category" else tuple(sorted(known, key=float))

    @property
    def panels(self) -> tuple[str, ...]:
        """The names of its parts, as they first come; one without a name where there is nothing to tell apart."""
        return tuple(dict.fromkeys(part.panel for part in (*self.series, *self.gaps)))

    def of_panel(self, name: str) -> Chart:
        """What is in that part alone."""
        return replace(
            self,
            series=tuple(series for series in self.series if series.panel == name),
            gaps=tuple(gap for gap in self.gaps if gap.panel == name),
        )


def read_chart(result: Node) -> Chart:
    x, y = result.node("x"), result.node("y")
    x_scale = _one_of(x, "scale", _SCALES, "category")
    form = _one_of(result, "form", FORMS, "bars")
    y_log = form == "ratios" or _one_of(y, "scale", _SCALES[1:], "linear") == "log"
    numeric = x_scale != "category" and form == "lines"
    found = [_series(node, numeric=numeric, log_x=x_scale == "log") for node in result.nodes("series")]
    gaps = [_gap(node, numeric=numeric) for node in (result.nodes("gaps") if result.has("gaps") else [])]
    if sum(len(series.points) for series in found) + len(gaps) > _POINTS_AT_MOST:
        refuse_because((None, "series"), f"must hold at most {_POINTS_AT_MOST:,} points")
    if len({part.panel for part in (*found, *gaps)}) > _PANELS_AT_MOST:
        refuse_because((None, "series"), f"must be in at most {_PANELS_AT_MOST} panels")
    drawn, beyond = _drawable(found, log=y_log)
    if not any(series.points for series in drawn):
        told = f": {gaps[0].why}" if gaps else ""
        raise NothingToDrawError(f"this chart has no number to draw{told}")
    return Chart(
        name=result.text("name", "chart"),
        title=result.text("title"),
        subtitle=result.sentence("subtitle") if result.has("subtitle") else "",
        form=form,
        x_label=x.text("label", ""),
        x_scale=x_scale if numeric else "category",
        x_unit=_x_unit(x) if numeric and x_scale == "linear" else Unit.NUMBER,
        y_label=y.text("label", ""),
        y_unit=_unit(y),
        y_log=y_log,
        series=tuple(drawn),
        gaps=(*gaps, *beyond),
        caption=_sentences(result, "caption"),
        commands=_sentences(result, "commands"),
    )


def _one_of(node: Node, key: str, known: tuple[str, ...], default: str) -> str:
    value = node.text(key, default)
    if value not in known:
        refuse((node.where, key), f"one of {', '.join(known)}", value)
    return value


def _unit(y: Node) -> Unit:
    name = y.text("unit", "")
    if name and name not in _UNITS:
        refuse((y.where, "unit"), f"one of {', '.join(_UNITS)}", name)
    return unit_named(name)


def _x_unit(x: Node) -> Unit:
    return _X_UNITS[_one_of(x, "unit", tuple(_X_UNITS), "")]


def unit_named(name: str) -> Unit:
    """The unit that JSON calls so; a plain number under any other name."""
    return _UNITS.get(name, Unit.NUMBER)


def _series(node: Node, *, numeric: bool, log_x: bool) -> ChartSeries:
    points = [_point(each, numeric=numeric, log_x=log_x) for each in node.nodes("points")]
    return ChartSeries(
        name=node.text("name"),
        published=node.yes("published"),
        points=tuple(point for point in points if point is not None),
        panel=node.text("panel", ""),
    )


def _point(node: Node, *, numeric: bool, log_x: bool) -> ChartPoint | None:
    """None where its value is absent, which a gap tells."""
    y = node.value("y")
    if isinstance(y, Absent):
        return None
    x = _x(node, numeric=numeric)
    if log_x and isinstance(x, float) and x <= 0:
        refuse((node.where, "x"), "a number above 0, since the axis is logarithmic", x)
    return ChartPoint(
        x=x,
        y=y,
        runs=node.texts("runs"),
        doubts=node.texts("doubts"),
        label=node.text("label", ""),
        apart=node.yes("apart"),
    )


def _x(node: Node, *, numeric: bool) -> str | float:
    if numeric:
        return node.number("x")
    value = node.items.get("x")
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:,.0f}" if value.is_integer() else digits(value)
    return node.text("x")


def _gap(node: Node, *, numeric: bool) -> Gap:
    return Gap(
        series=node.text("series", ""),
        x=_x(node, numeric=numeric),
        why=node.text("why", "not measured"),
        panel=node.text("panel", ""),
    )


def _drawable(found: list[ChartSeries], *, log: bool) -> tuple[list[ChartSeries], list[Gap]]:
    """On a logarithmic axis what is not above 0 has no place: it becomes a gap."""
    if not log:
        return found, []
    beyond = [
        Gap(
            series=series.name,
            x=point.x,
            why=f"{digits(point.y.middle)} has no place on a logarithmic axis",
            panel=series.panel,
        )
        for series in found
        for point in series.points
        if point.y.middle <= 0
    ]
    kept = [replace(series, points=tuple(point for point in series.points if point.y.middle > 0)) for series in found]
    return kept, beyond


def _sentences(result: Node, key: str) -> tuple[str, ...]:
    if not result.has(key):
        return ()
    place = (result.where, key)
    found: list[str] = []
    for at, words in enumerate(as_list(result.items[key], place)):
        if not isinstance(words, str):
            refuse((place, at), "text", words)
        found.append(harmless(words, LONGEST_SENTENCE))
    return tuple(found)
