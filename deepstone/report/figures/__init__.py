"""The figures of each kind of result. A new figure is a file here and a line in `CATALOG`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

from msgspec import Struct

from deepstone.errors import UsageError, nearest, shown
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.figures.algorithms import algorithms
from deepstone.report.figures.captions import failures
from deepstone.report.figures.ceilings import ceilings
from deepstone.report.figures.chart import chart
from deepstone.report.figures.comm import bandwidth, time
from deepstone.report.figures.layers import groups_bars, layers_bars
from deepstone.report.figures.memory import memory
from deepstone.report.figures.rank_memory import rank_memory
from deepstone.report.figures.roofline import roofline
from deepstone.report.figures.run import run
from deepstone.report.figures.scaling import scaling, step_by_processes
from deepstone.report.figures.timeline import timeline
from deepstone.report.figures.tune import search, waterfall
from deepstone.report.figures.tune_space import coordinates, pareto
from deepstone.report.wording import made_harmless
from deepstone.results.chart import Chart
from deepstone.results.findings import Finding
from deepstone.results.record import Record
from deepstone.results.scaling import Scaling

Result: TypeAlias = Finding | Chart | Record | Scaling

# If there is room for one, it is the first of the kind.
CATALOG: Final[Mapping[str, Mapping[str, Callable[[Finding], Figure]]]] = {
    "layers": {"bars": layers_bars, "groups": groups_bars, "roofline": roofline},
    "conv": {"algorithms": algorithms},
    "memory": {"memory": memory},
    "peaks": {"ceilings": ceilings},
    "comm": {"bandwidth": bandwidth, "time": time},
    "tune": {"waterfall": waterfall, "search": search, "coordinates": coordinates, "pareto": pareto},
}
CHART: Final = "chart"
SCALE: Final = "scale"
KINDS: Final = (*CATALOG, CHART, SCALE)


class Drawable(Struct, frozen=True, kw_only=True):
    """The figures of a result, and the reasons for those that it lacks."""

    figures: tuple[Figure, ...]
    missing: tuple[str, ...]


def make_figure(result: Result, name: str | None) -> Figure:
    """Make one figure of a result, by default the first of its kind."""
    makers = _makers(result)
    chosen = next(iter(makers)) if name is None else name
    if chosen not in makers:
        raise UsageError(f"no figure {shown(chosen)!r} of such a result; {nearest(chosen, makers)}")
    return made_harmless(makers[chosen]())


def make_figures(result: Result, name: str | None) -> Drawable:
    """Make all figures of a result, or the one of this name."""
    if name is not None:
        return Drawable(figures=(make_figure(result, name),), missing=())
    figures: list[Figure] = []
    missing: list[str] = []
    for each, make in _makers(result).items():
        try:
            figures.append(made_harmless(make()))
        except NothingToDrawError as error:
            missing.append(f"{each}: {error}")
    if not figures:
        raise NothingToDrawError(f"nothing in this result can be drawn: {'; '.join(missing)}")
    return Drawable(figures=tuple(figures), missing=tuple(missing))


def _makers(result: Result) -> Mapping[str, Callable[[], Figure]]:
    if isinstance(result, Chart):
        return {CHART: partial(chart, result)}
    if isinstance(result, Scaling):
        return {"scaling": partial(scaling, result), "steps": partial(step_by_processes, result)}
    if isinstance(result, Record):
        of_several = {"timeline": partial(timeline, result), "ranks": partial(rank_memory, result)}
        return {"run": partial(run, result), **({} if result.parallel is None else of_several)}
    if result.outcome not in (None, "ok"):
        raise NothingToDrawError("; ".join(["nothing was measured", *failures(result)]))
    if result.kind not in CATALOG:
        raise NothingToDrawError(f"no figure shows results of kind {result.kind}; `deepstone results show` prints them")
    return {name: partial(make, result) for name, make in CATALOG[result.kind].items()}
