"""Which figures there are for which kind of result. A new figure is a file in `figures/` and a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from deepstone.errors import UsageError, nearest
from deepstone.records.shape import shown
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.figures.algorithms import algorithms
from deepstone.report.figures.ceilings import ceilings
from deepstone.report.figures.chart import chart
from deepstone.report.figures.groups_bars import groups_bars
from deepstone.report.figures.heading import failures
from deepstone.report.figures.layers_bars import layers_bars
from deepstone.report.figures.memory import memory
from deepstone.report.figures.roofline import roofline
from deepstone.report.reading import Node

MakeFigure: TypeAlias = Callable[[Node], Figure]

# The first of each kind is drawn where there is room for one.
CATALOG: Final[Mapping[str, Mapping[str, MakeFigure]]] = {
    "layers": {"bars": layers_bars, "groups": groups_bars, "roofline": roofline, "memory": memory},
    "conv": {"algorithms": algorithms},
    "memory": {"memory": memory},
    "peaks": {"ceilings": ceilings},
    "chart": {"chart": chart},
}
SCHEMA: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawable:
    """The figures of a result, and for those that it has not, the reason."""

    figures: tuple[Figure, ...]
    missing: tuple[str, ...]


def make_figure(result: Mapping[str, object], name: str | None) -> Figure:
    """One figure of a result, by default the first of its kind."""
    makers = _makers(result)
    chosen = next(iter(makers)) if name is None else name
    return _maker(makers, chosen)(Node(result))


def make_figures(result: Mapping[str, object], name: str | None) -> Drawable:
    """All figures that a result has, or the one that is named."""
    if name is not None:
        return Drawable(figures=(make_figure(result, name),), missing=())
    figures: list[Figure] = []
    missing: list[str] = []
    for each, make in _makers(result).items():
        try:
            figures.append(make(Node(result)))
        except NothingToDrawError as error:
            missing.append(f"{each}: {error}")
    if not figures:
        raise NothingToDrawError(f"nothing in this result can be drawn: {'; '.join(missing)}")
    return Drawable(figures=tuple(figures), missing=tuple(missing))


def _makers(result: Mapping[str, object]) -> Mapping[str, MakeFigure]:
    kind = result.get("kind")
    if result.get("outcome", "ok") != "ok":
        raise NothingToDrawError("; ".join(["nothing was measured", *failures(Node(result))]))
    if not isinstance(kind, str) or kind not in CATALOG:
        told = f"is of kind {shown(kind)}" if "kind" in result else "does not say of which kind it is"
        raise UsageError(f"this result {told}; results that can be drawn are of kind {', '.join(CATALOG)}")
    if result.get("schema", SCHEMA) != SCHEMA:
        raise UsageError(f"this result is of schema {shown(result['schema'])}; this version draws schema {SCHEMA}")
    return CATALOG[kind]


def _maker(makers: Mapping[str, MakeFigure], name: str) -> MakeFigure:
    if name not in makers:
        raise UsageError(f"no figure {shown(name)} of such a result; {nearest(name, makers)}")
    return makers[name]
