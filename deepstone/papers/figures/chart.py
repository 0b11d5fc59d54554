"""The data of one chart as it grows: series of points with intervals, gaps with reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from deepstone.measure.statistics import Quantity
from deepstone.papers.paper import Figure

SCHEMA: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    label: str
    scale: str  # category, linear or log
    unit: str = ""


@dataclass(kw_only=True, slots=True)
class Chart:
    form: str  # bars, lines or ratios
    x: Axis
    y: Axis
    subtitle: str = ""
    series: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])
    gaps: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    commands: list[str] = field(default_factory=list[str])
    caption: list[str] = field(default_factory=list[str])

    def point(
        self, series: str, x: str | int, y: Quantity | float, *, runs: Sequence[str] = (), doubts: Sequence[str] = ()
    ) -> None:
        value = y.to_json() if isinstance(y, Quantity) else y
        points = self.series.setdefault(series, [])
        points.append({"x": x, "y": value, "runs": list(runs), "doubts": list(doubts)})

    def gap(self, series: str, x: str | int, why: str) -> None:
        self.gaps.append({"series": series, "x": x, "why": why})

    def to_json(self, figure: Figure) -> dict[str, Any]:
        measured = [{"name": name, "published": False, "points": points} for name, points in self.series.items()]
        return {
            "schema": SCHEMA,
            "kind": "chart",
            "name": figure.name,
            "title": figure.title,
            "subtitle": self.subtitle,
            "form": self.form,
            "x": {"label": self.x.label, "scale": self.x.scale},
            "y": {"label": self.y.label, "unit": self.y.unit, "scale": self.y.scale},
            "series": [*measured, *(published_series(each) for each in figure.published)],
            "gaps": [*self.gaps, *(dict(gap) for each in figure.published for gap in each.get("gaps", ()))],
            "caption": [*figure.caption, *self.caption],
            "commands": list(dict.fromkeys(self.commands)),
        }


def published_series(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A series of the paper's own numbers: x as a list, y as a list beside it."""
    points: list[dict[str, Any]] = [
        {"x": x, "y": float(y), "runs": [], "doubts": []} for x, y in zip(entry["x"], entry["y"], strict=True)
    ]
    return {"name": f"{entry['name']} (published)", "published": True, "points": points}


def time_scale(places: int) -> str:
    """Linear as in the papers; machines of different kinds need a logarithmic one."""
    return "log" if places > 1 else "linear"


def named(what: str, place: str, several: bool) -> str:
    """A series is called by its machine too where there are several."""
    return f"{what}, {place}" if several else what
