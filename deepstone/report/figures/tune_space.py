"""Setups in the space that was searched: parallel coordinates of all looks, and speed against energy.

coordinates   every setup as a line across the axes that were searched
pareto        samples per second against samples per joule
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from deepstone.absent import Absent
from deepstone.report import palette
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.figures.tune import (
    BEST,
    DEFAULT,
    LED,
    OTHER,
    content,
    energy_unit,
    rate_unit,
    setup_words,
    tune_figure,
)
from deepstone.report.panels import Axis, ParallelPlot, Point, PointGroup, ScatterPlot, Series, Strand, Upright
from deepstone.report.table import Table, Value, name_columns, number_columns, value_of
from deepstone.report.wording import SHOWN, listed
from deepstone.results.findings import Finding
from deepstone.results.parts import Value as AxisValue
from deepstone.results.quantity import Quantity
from deepstone.results.tune import Finalist, Look
from deepstone.setups.axes import AXES

_FAILED: Final = Series(name="failed", colour=palette.PURPLE, published=True)
_FRONT: Final = Series(name="not dominated", colour=palette.GREEN, marker="diamond")
_DOMINATED: Final = Series(name="dominated", colour=palette.OTHER)
_ONE_LOOK: Final = Series(name="one look, no interval", colour=palette.SKY)
_MOST_VALUES: Final = 9  # of an upright axis; more texts would touch


def coordinates(finding: Finding) -> Figure:
    """Make the figure of parallel coordinates: one line for each setup that was looked at."""
    found = content(finding)
    setups = _by_setup(found.looks)
    varied = [axis for axis in found.space.axes if len({_at(setup, axis.name) for setup in setups}) > 1]
    if not varied or not setups:
        raise NothingToDrawError("all looks are of one setup, so no axis varies")
    values = {axis.name: _values(axis.name, [str(each) for each in axis.values], setups) for axis in varied}
    rates = [rate for rate in setups.values() if rate is not None]
    top = max(rates, default=1.0)
    unit = rate_unit(finding)
    uprights = [Upright(name=name, ticks=_ticks(own)) for name, own in values.items()]
    speed = Upright(name=unit.value, ticks=((0.0, "0"), (0.5, _rounded(top / 2)), (1.0, _rounded(top))))
    strands: dict[Series, list[Strand]] = {series: [] for series in (OTHER, _FAILED, DEFAULT, BEST)}
    default, best = _frozen(found.default.setup), _frozen(found.best.setup)
    for setup, rate in setups.items():
        places = [_place(values[name], _at(setup, name)) for name in values]
        strand = Strand(
            places=(*places, None if rate is None else rate / top),
            details=(setup_words(dict(setup)), "failed" if rate is None else SHOWN[unit](rate)),
        )
        is_best = setup == best and found.is_better
        series = BEST if is_best else DEFAULT if setup == default else _FAILED if rate is None else OTHER
        strands[series].append(strand)
    panel = ParallelPlot(
        title="Setups that were looked at",
        axes=(*uprights, speed),
        series=tuple(strands),
        strands=tuple(tuple(own) for own in strands.values()),
    )
    missing = [axis.name for axis in found.space.axes if axis not in varied]
    return tune_figure(
        finding,
        "coordinates",
        "all setups that were looked at",
        panels=(panel,),
        caption=(
            "A line is one setup. Its place on the last axis is the mean of its looks; one that failed ends before it.",
            *((f"No look changed: {listed(missing, 8)}.",) if missing else ()),
        ),
        table=Table(
            columns=(*name_columns("setup"), *number_columns(unit, "speed, mean of its looks")),
            rows=tuple(
                (setup_words(dict(setup)), Absent("every look failed") if rate is None else rate)
                for setup, rate in sorted(setups.items(), key=lambda each: -(each[1] or 0.0))
            ),
        ),
    )


_Setup = tuple[tuple[str, AxisValue], ...]


def _frozen(setup: Mapping[str, AxisValue]) -> _Setup:
    return tuple(sorted(setup.items()))


def _by_setup(looks: Sequence[Look]) -> dict[_Setup, float | None]:
    """The mean rate of each setup, in the order of its first look; None if all looks at it failed."""
    rates: dict[_Setup, list[float]] = {}
    for look in looks:
        own = rates.setdefault(_frozen(look.setup), [])
        if not isinstance(look.samples_per_s, Absent):
            own.append(float(look.samples_per_s))
    return {setup: math.fsum(own) / len(own) if own else None for setup, own in rates.items()}


def _at(setup: _Setup, axis: str) -> str:
    return str(dict(setup).get(axis, _default(axis)))


def _default(axis: str) -> str:
    return str(AXES[axis].default) if axis in AXES else "default"


def _values(name: str, known: Sequence[str], setups: Iterable[_Setup]) -> list[str]:
    """The values that were used, from below: that of the default first, then in the order of the space."""
    used = {_at(setup, name) for setup in setups}
    ordered = [value for value in dict.fromkeys((_default(name), *known)) if value in used]
    return [*ordered, *sorted(used - set(ordered))]


def _ticks(values: Sequence[str]) -> tuple[tuple[float, str], ...]:
    every = math.ceil(len(values) / _MOST_VALUES)
    return tuple((_place(values, value), value) for at, value in enumerate(values) if at % every == 0)


def _place(values: Sequence[str], value: str) -> float:
    return values.index(value) / (len(values) - 1) if len(values) > 1 else 0.5


def _rounded(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def pareto(finding: Finding) -> Figure:
    """Make the figure of speed against energy. A setup is dominated only if both intervals of another say so."""
    found = content(finding)
    finals = [final for final in found.finals if _is_metered(final)]
    looks = [look for look in found.looks if not isinstance(look.samples_per_j, Absent) and look.kind in LED]
    looks = [look for look in looks if not isinstance(look.samples_per_s, Absent)]
    if not finals and not looks:
        why = next((look.samples_per_j.reason for look in found.looks if isinstance(look.samples_per_j, Absent)), "")
        raise NothingToDrawError(f"no look has energy: {why or 'nothing was metered'}")
    front, behind = list[Point](), list[Point]()
    for final in finals:
        (behind if any(_dominates(other, final) for other in finals) else front).append(_of_final(final))
    unit, energy = rate_unit(finding), energy_unit(finding)
    single = [
        Point(
            x=float(look.samples_per_j),
            y=Value(middle=float(look.samples_per_s)),
            label=setup_words(look.setup),
            weight=-1.0,
        )
        for look in looks
        if not isinstance(look.samples_per_j, Absent) and not isinstance(look.samples_per_s, Absent)
    ]
    groups = ((_ONE_LOOK, single), (_DOMINATED, behind), (_FRONT, front))
    panel = ScatterPlot(
        title="Speed against energy",
        x=Axis(label="energy efficiency", unit=energy),
        y=Axis(label="speed", unit=unit),
        lines=(),
        groups=tuple(PointGroup(series=series, points=tuple(points)) for series, points in groups if points),
    )
    return tune_figure(
        finding,
        "pareto",
        "speed against energy",
        panels=(panel,),
        caption=(
            "Right and above is better. A setup of the finals is dominated only if another is faster and more "
            "efficient by both intervals. Looks have no interval, so none is called dominated.",
        ),
        table=Table(
            columns=(*name_columns("setup"), *number_columns(unit, "speed"), *number_columns(energy, "efficiency")),
            rows=tuple(
                (setup_words(each.setup), value_of(each.samples_per_s), value_of(each.samples_per_j))
                for each in (*finals, *looks)
            ),
        ),
    )


def _is_metered(final: Finalist) -> bool:
    return isinstance(final.samples_per_j, Quantity) and isinstance(final.samples_per_s, Quantity)


def _of_final(final: Finalist) -> Point:
    speed, energy = value_of(final.samples_per_s), value_of(final.samples_per_j)
    assert isinstance(speed, Value)
    assert isinstance(energy, Value)
    name = f"default: {setup_words(final.setup)}" if final.is_default else setup_words(final.setup)
    return Point(x=energy.middle, y=speed, label=name, weight=1.0)


def _dominates(one: Finalist, other: Finalist) -> bool:
    pairs = ((one.samples_per_s, other.samples_per_s), (one.samples_per_j, other.samples_per_j))
    return all(isinstance(a, Quantity) and isinstance(b, Quantity) and a.low > b.high for a, b in pairs)
