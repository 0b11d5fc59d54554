"""Bars per layer and per kind of layer: forward and backward stacked, in the step and isolated, or by framework."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from deepstone.absent import Absent
from deepstone.report.figure import (
    Axis,
    BarChart,
    BarRow,
    Figure,
    NothingToDrawError,
    Segment,
    Series,
    Table,
    TableCell,
    Unit,
    Value,
    name_columns,
    number_columns,
    value_of,
)
from deepstone.report.figures import captions
from deepstone.report.figures.captions import costliest, missing_whiskers, others_in_words
from deepstone.report.figures.layer_times import PASSES, LayerTimes, Time, layer_times, whole_step
from deepstone.report.palette import BACKWARD, DATA_GRADIENT, FORWARD, WEIGHT_GRADIENT, hue, paler
from deepstone.report.wording import share, shortened, value_words
from deepstone.results.findings import Finding
from deepstone.results.layers import LayerGroup, LayerTable
from deepstone.units import digits, seconds

_REASON_ROOM: Final = 48
_WHISKERS: Final = "Lines across the ends of bars are 95 % intervals; sums of several layers have none."


def layers_bars(finding: Finding) -> Figure:
    tables = captions.contents(finding, LayerTable)
    parts = {name: layer_times(table) for name, table in tables.items()}
    names = list(dict.fromkeys(layer.name for layers in parts.values() for layer in layers))
    if not names:
        raise NothingToDrawError("this result has no layers; measure some with `deepstone layers`")
    found = {name: {layer.name: layer for layer in layers} for name, layers in parts.items()}
    shown, others = costliest(names, lambda name: max(each[name].cost_s for each in found.values() if name in each))
    legend = _single_legend(parts[""]) if "" in parts else _legend_of_frameworks(parts)
    rows = tuple(_row(name, found, legend) for name in shown)
    title = f"The {len(shown)} costliest layers" if others else "Layer by layer"
    whole = whole_step(tables, parts, frozenset(others))
    layers = BarChart(
        title=f"{title}, in the order of the network",
        axis=Axis(label="time per step", unit=Unit.SECONDS),
        series=tuple(legend.values()),
        rows=rows,
    )
    panels = (whole, layers) if whole.rows else (layers,)
    return captions.finding_figure(
        finding,
        "bars",
        "where the time of a step goes",
        panels=panels,
        caption=(
            *others_in_words(shown, others),
            *_how(tables),
            *captions.failures(finding),
            _WHISKERS,
            *missing_whiskers(panels),
        ),
        table=_table(parts),
    )


# A legend by bar and part, such as ("in the step", "forward"), in the order of drawing.
_Legend = dict[tuple[str, str], Series]


def _single_legend(layers: Sequence[LayerTimes]) -> _Legend:
    """Two bars a row where there are times of both kinds; only entries that some layer has."""
    in_step = {"forward": FORWARD, "backward": BACKWARD}
    isolated = {
        "forward": paler(FORWARD),
        "backward": paler(BACKWARD),
        "data gradient": DATA_GRADIENT,
        "weight gradient": WEIGHT_GRADIENT,
    }
    used_in_step = {part for layer in layers for part, time in layer.in_step if isinstance(time, Value)}
    used_isolated = {part for layer in layers for part, time in layer.isolated if isinstance(time, Value)}
    legend: _Legend = {
        ("in the step", part): Series(name=part, colour=colour)
        for part, colour in in_step.items()
        if part in used_in_step
    }
    for part, colour in isolated.items():
        if part in used_isolated:
            legend["isolated", part] = Series(name=f"{part}, layer isolated", colour=colour)
    return legend


def _legend_of_frameworks(parts: Mapping[str, Sequence[LayerTimes]]) -> _Legend:
    """One bar a row for each framework. One that has no times within the step is told to be of isolated layers."""
    legend: _Legend = {}
    for position, (name, layers) in enumerate(parts.items()):
        where = "" if _measured_in_step(layers) else ", layer isolated"
        colours = (hue(position), paler(hue(position)))
        for part, colour in zip(PASSES, colours, strict=True):
            legend[name, part] = Series(name=f"{name} {part}{where}", colour=colour)
    return legend


def _measured_in_step(layers: Sequence[LayerTimes]) -> bool:
    return any(layer.step_s is not None for layer in layers)


def _row(name: str, found: Mapping[str, Mapping[str, LayerTimes]], legend: _Legend) -> BarRow:
    places = {key: place for place, key in enumerate(legend)}
    if "" in found:
        layer = found[""][name]
        kinds = dict.fromkeys(bar for bar, _ in legend)
        times = {"in the step": layer.in_step, "isolated": layer.isolated}
        bars = tuple(_segments(times[bar], bar, places) for bar in kinds)
        return BarRow(label=name, bars=bars, note=_note(layer))
    layers = {framework: each.get(name) for framework, each in found.items()}
    bars = tuple(_segments(_both_passes(layer), framework, places) for framework, layer in layers.items())
    return BarRow(label=name, bars=bars)


def _both_passes(layer: LayerTimes | None) -> Iterable[tuple[str, Time]]:
    """Within the step, or isolated; gradients that were measured apart are the backward pass together."""
    if layer is None:
        return ()
    if layer.step_s is not None or not layer.isolated:
        return layer.in_step
    backward = [time.middle for part, time in layer.isolated if part != "forward" and isinstance(time, Value)]
    forward = [(part, time) for part, time in layer.isolated if part == "forward"]
    return [*forward, *([("backward", Value(middle=sum(backward)))] if backward else [])]


def _segments(
    times: Iterable[tuple[str, Time]], bar: str, places: Mapping[tuple[str, str], int]
) -> tuple[Segment, ...]:
    """Without what came out negative: it has no length."""
    return tuple(
        Segment(series=places[bar, part], value=time)
        for part, time in times
        if isinstance(time, Value) and time.middle >= 0
    )


def _note(layer: LayerTimes) -> str:
    if layer.step_s is None:
        return seconds(layer.isolated_s) if layer.isolated_s is not None else shortened(layer.why_absent, _REASON_ROOM)
    return f"{seconds(layer.step_s)} · {share(layer.share)}"


def _how(tables: Mapping[str, LayerTable]) -> list[str]:
    """How layers were timed, what became of shared time, and how much of the step all of it explains."""
    lines: list[str] = []
    for name, table in tables.items():
        told = [f"timed by {table.method}", table.rule]
        explained = value_of(table.explained)
        if isinstance(explained, Value):
            told.append(f"all measured parts together are {value_words(explained, digits)} of the untraced step")
        told += _medians_apart(table)
        lines.append(f"{name or 'Layers'}: {'; '.join(words.rstrip('.') for words in told)}.")
    return lines


def _medians_apart(table: LayerTable) -> list[str]:
    """How long the step was in which they were measured; sums of medians do not come to it."""
    traced, ratio = value_of(table.traced_step_s), value_of(table.traced_time_ratio)
    if isinstance(traced, Absent) or isinstance(ratio, Absent):
        return []
    step = (
        f"traced, a step takes {seconds(traced.middle)}; "
        f"round by round that is {value_words(ratio, digits)} of the untraced one"
    )
    return [f"{step}; sums are those of medians, and what disturbs a step hits another part each time"]


def _table(parts: Mapping[str, Sequence[LayerTimes]]) -> Table:
    kinds = list(dict.fromkeys(part for layers in parts.values() for layer in layers for part, _ in layer.isolated))
    columns = (
        *name_columns("layer", "op"),
        *number_columns(Unit.SECONDS, *PASSES),
        *number_columns(Unit.SHARE, "share"),
        *number_columns(Unit.SECONDS, *(f"{kind}, isolated" for kind in kinds)),
    )
    rows = {framework: [_table_row(layer, kinds) for layer in layers] for framework, layers in parts.items()}
    return captions.table_by_framework(columns, rows)


def _table_row(layer: LayerTimes, kinds: Sequence[str]) -> tuple[TableCell, ...]:
    isolated = dict(layer.isolated)
    times = (time for _, time in layer.in_step)
    return (layer.name, layer.op, *times, layer.share, *(isolated.get(kind) for kind in kinds))


def groups_bars(finding: Finding) -> Figure:
    tables = captions.contents(finding, LayerTable)
    groups = {name: {group.name: group for group in table.groups} for name, table in tables.items()}
    names = list(dict.fromkeys(group for each in groups.values() for group in each))
    if not names:
        raise NothingToDrawError("this result has no groups of layers; measure some with `deepstone layers`")
    series: list[Series] = []
    for position, framework in enumerate(groups):
        colours = (hue(position), paler(hue(position))) if framework else (FORWARD, BACKWARD)
        series += [
            Series(name=f"{framework} {part}".strip(), colour=colour)
            for part, colour in zip(PASSES, colours, strict=True)
        ]
    rows = [
        BarRow(
            label=name,
            bars=tuple(_group_bar(each.get(name), 2 * position) for position, each in enumerate(groups.values())),
            note=_group_note(groups[""][name]) if "" in groups else "",
        )
        for name in names
    ]
    axis = Axis(label="time per step", unit=Unit.SECONDS)
    return captions.finding_figure(
        finding,
        "groups",
        "time by kind of layer",
        panels=(BarChart(title="Kinds of layers", axis=axis, series=tuple(series), rows=tuple(rows)),),
        caption=("Shares are of the sum of all layers.", *captions.failures(finding)),
        table=_group_table(groups),
    )


def _group_bar(group: LayerGroup | None, first: int) -> tuple[Segment, ...]:
    times = () if group is None else (group.forward_s, group.backward_s)
    return tuple(Segment(series=first + at, value=Value(middle=time)) for at, time in enumerate(times))


def _group_note(group: LayerGroup) -> str:
    return f"{seconds(group.forward_s + group.backward_s)} · {share(group.share)}"


def _group_table(groups: Mapping[str, Mapping[str, LayerGroup]]) -> Table:
    rows = {
        framework: [(group.name, group.forward_s, group.backward_s, group.share) for group in each.values()]
        for framework, each in groups.items()
    }
    numbers = (*number_columns(Unit.SECONDS, *PASSES), *number_columns(Unit.SHARE, "share"))
    return captions.table_by_framework((*name_columns("kind"), *numbers), rows)
