"""What a search for the best setup found: the gain and its parts, the search as it went, every look, and energy.

waterfall     from the default to the best, one lane for each changed axis; added and removed; the finals
search        the rate of each look over time, the best so far, what failed
coordinates   every look as a line across the axes that were searched
pareto        samples per second against samples per joule
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from deepstone.absent import Absent
from deepstone.report import palette
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.figures.captions import commands, cut_whiskers, missing_whiskers
from deepstone.report.panels import (
    Axis,
    BarChart,
    BarLabel,
    BarRow,
    Lane,
    LaneChart,
    LineChart,
    Panel,
    Point,
    PointGroup,
    Segment,
    Series,
    TimeSpan,
)
from deepstone.report.table import Table, TableCell, Unit, Value, name_columns, number_columns, value_of
from deepstone.report.wording import SHOWN
from deepstone.results.findings import Finding
from deepstone.results.parts import Value as AxisValue
from deepstone.results.quantity import Quantity
from deepstone.results.tune import (
    LOOK_KINDS,
    AxisRatio,
    Finalist,
    Look,
    LookKind,
    ObjectiveName,
    Tuned,
    Why,
    broken_limit,
)
from deepstone.units import digits

_GAIN: Final[Mapping[ObjectiveName, Series]] = {
    "throughput": Series(name="faster", colour=palette.GREEN),
    "energy": Series(name="more efficient", colour=palette.GREEN),
    "memory": Series(name="less memory", colour=palette.GREEN),
}
_LOSS: Final[Mapping[ObjectiveName, Series]] = {
    "throughput": Series(name="slower", colour=palette.VERMILLION),
    "energy": Series(name="less efficient", colour=palette.VERMILLION),
    "memory": Series(name="more memory", colour=palette.VERMILLION),
}
_TOGETHER: Final = Series(name="together", colour=palette.OTHER)
_ADDED: Final = Series(name="added to the default", colour=palette.BLUE)
_REMOVED: Final = Series(name="removed from the best", colour=palette.ORANGE, marker="diamond")
_ESTIMATED: Final = {
    "added": Series(name="added, estimated", colour=palette.BLUE, published=True),
    "removed": Series(name="removed, estimated", colour=palette.ORANGE, marker="diamond", published=True),
}
_KINDS: Final[Mapping[LookKind, Series]] = {
    "start": Series(name="start", colour=palette.PURPLE),
    "search": Series(name="search", colour=palette.BLUE),
    "sentinel": Series(name="default again", colour=palette.OTHER),
    "repeat": Series(name="repeat", colour=palette.SKY),
    "final": Series(name="finals", colour=palette.GREEN, marker="diamond"),
    "explain": Series(name="explanation", colour=palette.ORANGE),
}
_BEST_SO_FAR: Final = Series(name="best so far", colour=palette.VERMILLION, published=True)
LED: Final = ("start", "search", "sentinel", "repeat")  # the looks that led the search
DEFAULT: Final = Series(name="default", colour=palette.TOTAL, marker="diamond")
BEST: Final = Series(name="best", colour=palette.VERMILLION, marker="diamond")
OTHER: Final = Series(name="other looks", colour=palette.SKY)
_FINALIST: Final = Series(name="other finalist", colour=palette.SKY)


def content(finding: Finding) -> Tuned:
    if not isinstance(finding.content, Tuned):
        raise NothingToDrawError("this result is not of `deepstone tune`")
    return finding.content


def setup_words(setup: Mapping[str, AxisValue]) -> str:
    """A setup as one would type it."""
    return " ".join(f"{name}={value}" for name, value in setup.items()) or "all defaults"


def rate_unit(finding: Finding) -> Unit:
    named = finding.workload is not None and finding.workload.sample is not None
    return Unit.OTHER_SAMPLES_PER_S if named else Unit.SAMPLES_PER_S


def energy_unit(finding: Finding) -> Unit:
    return Unit.OTHER_SAMPLES_PER_J if rate_unit(finding) is Unit.OTHER_SAMPLES_PER_S else Unit.SAMPLES_PER_J


def _sought_unit(finding: Finding) -> Unit:
    """Of what was sought."""
    match content(finding).objective.name:
        case "throughput":
            return rate_unit(finding)
        case "energy":
            return energy_unit(finding)
        case "memory":
            return Unit.BYTES


def _sought(found: Tuned, measured: Look | Finalist) -> Quantity | float | Absent:
    """What was sought of a look or a finalist."""
    if isinstance(measured.samples_per_s, Absent):
        return measured.samples_per_s
    match found.objective.name:
        case "throughput":
            return measured.samples_per_s
        case "energy":
            return measured.samples_per_j
        case "memory":
            return measured.peak_bytes


def tune_figure(
    finding: Finding, name: str, title: str, *, panels: Sequence[Panel], caption: Iterable[str], table: Table
) -> Figure:
    found = content(finding)
    rounds = found.rounds_in_words if found.finals else "no finals"
    return Figure(
        name=name,
        model=finding.model or "",
        title=title,
        subtitle=f"{len(found.looks)} launches, {rounds}; a space of {found.space.setups:,} setups",
        panels=tuple(panels),
        caption=(*caption, *missing_whiskers(panels), *cut_whiskers(panels)),
        table=table,
        commands=commands(finding),
    )


def waterfall(finding: Finding) -> Figure:
    """Make the figure of the gain: its parts, and the finals that show it."""
    found = content(finding)
    if not found.finals:
        raise NothingToDrawError("no finals were measured; give `deepstone tune` a larger --budget")
    panels: list[Panel] = []
    if found.why:
        panels += [_parts(found), _effects(found)]
    panels.append(_finals(found, _sought_unit(finding)))
    explained = (
        "Each lane begins where the one above ends. A change's part is the mean, in log space, of what it brings when "
        "it is added to the default and what is lost when it is removed from the best; the line across the end reaches "
        "from the one to the other. What the parts do not explain is called together.",
    )
    hollow = ("Hollow points are estimates of the search's model, not measured.",) if _has_estimate(found.why) else ()
    return tune_figure(
        finding,
        "waterfall",
        "where the gain comes from" if found.why else "the finals",
        panels=panels,
        caption=(
            *(explained if found.why else ()),
            *hollow,
            "Finals: fresh processes in random order; 95 % intervals.",
        ),
        table=_waterfall_table(found, rate_unit(finding)),
    )


def _has_estimate(why: Sequence[Why]) -> bool:
    effects = [effect for each in why for effect in (each.added, each.removed)]
    return any(isinstance(effect, AxisRatio) and effect.estimated for effect in effects)


def _parts(found: Tuned) -> LaneChart:
    lanes: list[Lane] = []
    so_far = 1.0
    for each in found.why:
        part = found.number_as_told(each.contribution.median)
        effects = [
            found.as_told(effect.ratio) for effect in (each.added, each.removed) if isinstance(effect, AxisRatio)
        ]
        ends = [so_far * effect.median for effect in effects]
        label = f"{each.axis}={each.best}, {SHOWN[Unit.RATIO](part)}"
        told = (f"added {_effect(found, each.added)}", f"removed {_effect(found, each.removed)}")
        whisker = (min(ends), max(ends)) if len(ends) > 1 else None
        is_gain = each.contribution.median >= 1
        lanes.append(
            _lane(label, so_far, so_far * part, 0 if is_gain else 1, (f"{each.default} before", *told), whisker)
        )
        so_far *= part
    if isinstance(found.together, Quantity):
        together = found.number_as_told(found.together.median)
        label = f"together, {SHOWN[Unit.RATIO](together)}"
        lanes.append(_lane(label, so_far, so_far * together, 2, ("what the parts do not explain",), None))
    return LaneChart(
        title="From the default to the best",
        axis=Axis(label=f"{found.sought} over the default", unit=Unit.RATIO, log=True),
        series=(_GAIN[found.objective.name], _LOSS[found.objective.name], _TOGETHER),
        lanes=tuple(lanes),
    )


def _lane(
    label: str, start: float, end: float, series: int, details: tuple[str, ...], whisker: tuple[float, float] | None
) -> Lane:
    low, high = min(start, end), max(start, end)
    span = TimeSpan(series=series, start=low, end=high, details=details, whisker=whisker)
    return Lane(label=label, tracks=((span,),))


def _effect(found: Tuned, effect: AxisRatio | Absent) -> str:
    if isinstance(effect, Absent):
        return f"absent: {effect.reason}"
    estimated, ratio = ", estimated" if effect.estimated else "", found.as_told(effect.ratio)
    return f"{SHOWN[Unit.RATIO](ratio.median)} ({ratio.span_in_words(SHOWN[Unit.RATIO])}{estimated})"


def _effects(found: Tuned) -> BarChart:
    series = (_ADDED, _REMOVED, _ESTIMATED["added"], _ESTIMATED["removed"])
    rows = [
        BarRow(
            label=f"{each.axis}={each.best}",
            bars=(_effect_bar(found, each.added, 0), _effect_bar(found, each.removed, 1)),
            bar_labels=(_effect_label(found, each.added), _effect_label(found, each.removed)),
        )
        for each in found.why
    ]
    return BarChart(
        title="Each change alone",
        axis=Axis(label=f"{found.sought} ratio", unit=Unit.RATIO, log=True),
        series=series,
        rows=tuple(rows),
        reference=1.0,
    )


def _effect_bar(found: Tuned, effect: AxisRatio | Absent, series: int) -> tuple[Segment, ...]:
    if isinstance(effect, Absent):
        return ()
    value = value_of(found.as_told(effect.ratio))
    assert isinstance(value, Value)
    return (Segment(series=series + 2 * effect.estimated, value=value),)


def _effect_label(found: Tuned, effect: AxisRatio | Absent) -> BarLabel:
    if isinstance(effect, Absent):
        return BarLabel(text=effect.reason, gap=True)
    return BarLabel(text=SHOWN[Unit.RATIO](found.number_as_told(effect.ratio.median)))


def _finals(found: Tuned, unit: Unit) -> BarChart:
    series = (DEFAULT, BEST, _FINALIST)
    rows: list[BarRow] = []
    for final in found.finals:
        value, ratio = value_of(_sought(found, final)), _ratio(found, final)
        at = 0 if final.is_default else 1 if final.is_best else 2
        bar = () if isinstance(value, Absent) else (Segment(series=at, value=value, details=(ratio,)),)
        label = BarLabel(text=value.reason, gap=True) if isinstance(value, Absent) else BarLabel(text=ratio)
        name = f"default: {setup_words(final.setup)}" if final.is_default else setup_words(final.setup)
        rows.append(BarRow(label=name, bars=(bar,), bar_labels=(label,)))
    return BarChart(title="The finals", axis=Axis(label=found.sought, unit=unit), series=series, rows=tuple(rows))


def _ratio(found: Tuned, final: Finalist) -> str:
    if isinstance(final.ratio, Absent) or final.is_default:
        return ""
    ratio = found.as_told(final.ratio)
    return f"{SHOWN[Unit.RATIO](ratio.median)} ({ratio.span_in_words(digits)})"


def _waterfall_table(found: Tuned, unit: Unit) -> Table:
    of = "" if found.is_of_speed else f" of the {found.sought}"
    ratios = number_columns(Unit.RATIO, *(f"{name}{of}" for name in ("part", "added", "removed", "over the default")))
    rows: list[tuple[TableCell, ...]] = [
        (
            f"{each.axis}: {each.default} → {each.best}",
            value_of(found.as_told(each.contribution)),
            *(
                value_of(found.as_told(effect.ratio)) if isinstance(effect, AxisRatio) else effect
                for effect in (each.added, each.removed)
            ),
            None,
            None,
        )
        for each in found.why
    ]
    if found.why:
        rows.append(("together", _told(found, found.together), None, None, None, None))
    finals = [
        (setup_words(final.setup), None, None, None, _told(found, final.ratio), value_of(final.samples_per_s))
        for final in found.finals
    ]
    runs = [*(() for _ in rows), *(tuple(final.runs) for final in found.finals)]
    return Table(
        columns=(*name_columns("change or setup"), *ratios, *number_columns(unit, "speed")),
        rows=(*rows, *finals),
        runs=tuple(runs),
    )


def _told(found: Tuned, ratio: Quantity | Absent) -> Value | Absent:
    return ratio if isinstance(ratio, Absent) else value_of(found.as_told(ratio))


def search(finding: Finding) -> Figure:
    """Make the figure of the search as it went."""
    found = content(finding)
    if not found.looks:
        raise NothingToDrawError("nothing was measured")
    ended_s = [look.began_s + look.took_s for look in found.looks]
    looks = list(zip(found.looks, ended_s, strict=True))
    groups = [_group(found, kind, looks) for kind in LOOK_KINDS]
    failed = sum(isinstance(_sought(found, look), Absent) for look in found.looks)
    crosses = "failed" if found.is_of_speed else "failed, or have no number of what is sought"
    panel = LineChart(
        title="Every look, when it was done",
        x=Axis(label="time since the start", unit=Unit.SECONDS),
        y=Axis(label=found.sought, unit=_sought_unit(finding)),
        curves=(_best_so_far(found, looks), *(group for group in groups if group.points or group.gaps)),
    )
    return tune_figure(
        finding,
        "search",
        "the search as it went",
        panels=(panel,),
        caption=(
            "One launch each, without an interval: looks lead the search and prove nothing. The answer comes from the "
            "finals alone.",
            *((f"Crosses are looks that {crosses} ({failed}); the table has their reasons.",) if failed else ()),
            *(("The best so far leaves out what breaks a limit.",) if found.limits else ()),
        ),
        table=_looks_table(finding, ended_s),
    )


def _group(found: Tuned, kind: LookKind, looks: Sequence[tuple[Look, float]]) -> PointGroup:
    own = [(look, _sought(found, look), ended_s) for look, ended_s in looks if look.kind == kind]
    points = tuple(
        Point(x=ended_s, y=value, apart=True, details=(setup_words(look.setup),))
        for look, sought, ended_s in own
        if not isinstance(value := value_of(sought), Absent)
    )
    gaps = tuple((ended_s, sought.reason) for _, sought, ended_s in own if isinstance(sought, Absent))
    return PointGroup(series=_KINDS[kind], points=points, gaps=gaps, gap_words=False)


def _best_so_far(found: Tuned, looks: Sequence[tuple[Look, float]]) -> PointGroup:
    """A staircase: from look to look, the best of what was sought among those that led the search and keep the limits;
    of memory, the least."""
    better = min if found.objective.name == "memory" else max
    best, points = None, list[Point]()
    for look, ended_s in looks:
        value = value_of(_sought(found, look))
        if look.kind not in LED or isinstance(value, Absent) or broken_limit(found.limits, look):
            continue
        if best is not None:
            points.append(Point(x=ended_s, y=Value(middle=best)))
        if best is None or better(value.middle, best) != best:
            best = value.middle
            points.append(Point(x=ended_s, y=Value(middle=best), details=(setup_words(look.setup),)))
    return PointGroup(series=_BEST_SO_FAR, points=tuple(points))


def _looks_table(finding: Finding, ended_s: Sequence[float]) -> Table:
    found = content(finding)
    also = () if found.is_of_speed else number_columns(_sought_unit(finding), found.sought)
    return Table(
        columns=(
            *name_columns("look", "setup"),
            *number_columns(Unit.SECONDS, "done after", "took"),
            *number_columns(rate_unit(finding), "speed"),
            *also,
        ),
        rows=tuple(
            (
                _KINDS[look.kind].name if look.round is None else f"{_KINDS[look.kind].name}, round {look.round}",
                setup_words(look.setup),
                ended,
                float(look.took_s),
                look.samples_per_s if isinstance(look.samples_per_s, Absent) else float(look.samples_per_s),
                *(value_of(_sought(found, look)) for _ in also),
            )
            for look, ended in zip(found.looks, ended_s, strict=True)
        ),
        runs=tuple((look.run,) if look.run else () for look in found.looks),
    )
