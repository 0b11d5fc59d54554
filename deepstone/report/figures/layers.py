"""Bars per layer and per kind of layer: forward and backward stacked, in the step and isolated, or by framework."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.figures import captions
from deepstone.report.figures.captions import costliest, missing_whiskers, others_in_words
from deepstone.report.palette import BACKWARD, DATA_GRADIENT, FORWARD, OTHER, TOTAL, WEIGHT_GRADIENT, hue, paler
from deepstone.report.panels import Axis, BarChart, BarRow, Segment, Series
from deepstone.report.table import Table, TableCell, Unit, Value, name_columns, number_columns, value_of
from deepstone.report.wording import share, shortened, value_words
from deepstone.results.findings import Finding
from deepstone.results.layers import IsolatedLayer, LayerGroup, LayerRow, LayerTable
from deepstone.units import digits, seconds

Time: TypeAlias = Value | Absent

_PASSES: Final = ("forward", "backward")
_TIME: Final = Axis(label="time per step", unit=Unit.SECONDS)
_NOT_IN_STEP: Final = Absent("not timed within the step")
_TOTAL: Final = 0  # their positions among the series
_NO_LAYER: Final = 1
_OTHERS_AT_MOST: Final = 8
_REASON_ROOM: Final = 48
_WHISKERS: Final = "Lines across the ends of bars are 95 % intervals; sums of several layers have none."


def layers_bars(finding: Finding) -> Figure:
    tables = captions.contents(finding, LayerTable)
    parts = {name: _layer_times(table) for name, table in tables.items()}
    names = list(dict.fromkeys(layer.name for layers in parts.values() for layer in layers))
    if not names:
        raise NothingToDrawError("this result has no layers; measure some with `deepstone layers`")
    found = {name: {layer.name: layer for layer in layers} for name, layers in parts.items()}
    shown, others = costliest(names, lambda name: max(each[name].cost_s for each in found.values() if name in each))
    legend = _single_legend(parts[""]) if "" in parts else _legend_of_frameworks(parts)
    rows = tuple(_row(name, found, legend) for name in shown)
    title = f"The {len(shown)} costliest layers" if others else "Layer by layer"
    whole = _whole_step(tables, parts, frozenset(others))
    layers = BarChart(
        title=f"{title}, in the order of the network",
        axis=_TIME,
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
    """Make the legend: two bars a row if there are times of both kinds; only entries that some layer has."""
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
    """Make the legend with one bar a row for each framework. Frameworks without times within the step are labelled
    isolated."""
    legend: _Legend = {}
    for position, (name, layers) in enumerate(parts.items()):
        where = "" if _measured_in_step(layers) else ", layer isolated"
        series = _both_series(name, position, where)
        legend.update({(name, part): each for part, each in zip(_PASSES, series, strict=True)})
    return legend


def _both_series(framework: str, position: int, where: str = "") -> list[Series]:
    """Return forward and backward of each framework, each framework in its own colour."""
    colours = (hue(position), paler(hue(position))) if framework else (FORWARD, BACKWARD)
    names = [f"{framework} {part}{where}".strip() for part in _PASSES]
    return [Series(name=name, colour=colour) for name, colour in zip(names, colours, strict=True)]


def _measured_in_step(layers: Sequence[LayerTimes]) -> bool:
    return any(layer.step_s is not None for layer in layers)


def _row(name: str, found: Mapping[str, Mapping[str, LayerTimes]], legend: _Legend) -> BarRow:
    places = {key: place for place, key in enumerate(legend)}
    if "" in found:
        layer = found[""][name]
        kinds = dict.fromkeys(bar for bar, _ in legend)
        times = {"in the step": layer.in_step, "isolated": layer.isolated}
        bars = tuple(_segments(times[bar], bar, places) for bar in kinds)
        return BarRow(label=layer.label, bars=bars, note=_note(layer))
    layers = {framework: each.get(name) for framework, each in found.items()}
    bars = tuple(_segments(_both_passes(layer), framework, places) for framework, layer in layers.items())
    return BarRow(label=name, bars=bars)


def _both_passes(layer: LayerTimes | None) -> Iterable[tuple[str, Time]]:
    """Return both passes, within the step or isolated; gradients measured separately are added to the backward pass."""
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
    """Return the segments, without negative values, which have no length."""
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
    """Describe the method, the rule for shared time, and the share of the step that the parts explain."""
    lines: list[str] = []
    for name, table in tables.items():
        facts = [f"timed by {table.method}", table.rule]
        explained = value_of(table.explained)
        if isinstance(explained, Value):
            facts.append(f"all measured parts together are {value_words(explained, digits)} of the untraced step")
        facts += _medians_apart(table)
        lines.append(f"{name or 'Layers'}: {'; '.join(words.rstrip('.') for words in facts)}.")
    return lines


def _medians_apart(table: LayerTable) -> list[str]:
    """Return the length of the step in which layers were measured; medians do not add up to it."""
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
        *number_columns(Unit.SECONDS, *_PASSES),
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
        series += _both_series(framework, position)
    rows = [
        BarRow(
            label=name,
            bars=tuple(_group_bar(each.get(name), 2 * position) for position, each in enumerate(groups.values())),
            note=_group_note(groups[""][name]) if "" in groups else "",
        )
        for name in names
    ]
    return captions.finding_figure(
        finding,
        "groups",
        "time by kind of layer",
        panels=(BarChart(title="Kinds of layers", axis=_TIME, series=tuple(series), rows=tuple(rows)),),
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
    numbers = (*number_columns(Unit.SECONDS, *_PASSES), *number_columns(Unit.SHARE, "share"))
    return captions.table_by_framework((*name_columns("kind"), *numbers), rows)


class LayerTimes(Struct, frozen=True, kw_only=True):
    """Times of a layer. `isolated` has data and weight gradients if they were measured separately, else backward."""

    name: str
    op: str
    label: str
    in_step: tuple[tuple[str, Time], ...]
    isolated: tuple[tuple[str, Time], ...]
    share: float

    @property
    def step_s(self) -> float | None:
        return _total_s(time for _, time in self.in_step)

    @property
    def isolated_s(self) -> float | None:
        return _total_s(time for _, time in self.isolated)

    @property
    def cost_s(self) -> float:
        return self.step_s or self.isolated_s or 0.0

    @property
    def why_absent(self) -> str:
        return next((time.reason for _, time in (*self.in_step, *self.isolated) if isinstance(time, Absent)), "")


def _layer_times(table: LayerTable) -> list[LayerTimes]:
    """Return the times of all layers. A result with only isolated times repeats them as in place; those are ignored."""
    in_step = not isinstance(table.sum_s, Absent)
    return [_layer(row, in_step=in_step, of_module=table.blocks is not None) for row in table.layers]


def _total_s(times: Iterable[Time]) -> float | None:
    """Return the sum of the measured times, or None if there are none."""
    known = [time.middle for time in times if isinstance(time, Value)]
    return sum(known) if known else None


def _layer(row: LayerRow, *, in_step: bool, of_module: bool) -> LayerTimes:
    """Return the label of a layer; a submodule of a user's own module has its class, too."""
    with_class = of_module and not row.op.endswith("()")
    times = {"forward": value_of(row.forward_s), "backward": value_of(row.backward_s)}
    return LayerTimes(
        name=row.name,
        op=row.op,
        label=f"{row.name} ({row.op})" if with_class else row.name,
        in_step=tuple((name, time if in_step else _NOT_IN_STEP) for name, time in times.items()),
        isolated=() if isinstance(row.isolated, Absent) else _isolated(row.isolated),
        share=row.share,
    )


def _isolated(row: IsolatedLayer) -> tuple[tuple[str, Time], ...]:
    gradients = {"data gradient": value_of(row.data_s), "weight gradient": value_of(row.weight_s)}
    apart = [(name, time) for name, time in gradients.items() if isinstance(time, Value)]
    return (("forward", value_of(row.forward_s)), *(apart or [("backward", value_of(row.backward_s))]))


def _whole_step(
    tables: Mapping[str, LayerTable], layers: Mapping[str, Sequence[LayerTimes]], others: Collection[str]
) -> BarChart:
    """Make the rows of the whole step; each framework has consecutive rows."""
    series = [Series(name="total", colour=TOTAL), Series(name="not of a layer", colour=OTHER)]
    rows: list[BarRow] = []
    for position, (name, table) in enumerate(tables.items()):
        rows += _Rows(name=name, first=len(series), others=others).of(table, layers[name])
        series += _both_series(name, position)
    return BarChart(
        title="The whole step",
        axis=_TIME,
        series=tuple(series),
        rows=tuple(rows),
    )


class _Rows(Struct, frozen=True, kw_only=True):
    """Rows of a framework; `first` is the index of its forward and backward among the series."""

    name: str
    first: int
    others: Collection[str]

    def of(self, table: LayerTable, layers: Sequence[LayerTimes]) -> list[BarRow]:
        rows = [self._plain("step, not traced", value_of(table.step_s), _TOTAL)]
        rows.append(self._layers(f"all {len(layers):,} layers", layers))
        if self.others:
            shown = [layer for layer in layers if layer.name not in self.others]
            rows.append(self._layers(f"the {len(shown):,} layers below", shown))
            rest = [layer for layer in layers if layer.name in self.others]
            rows.append(self._layers(f"the other {len(rest):,} layers", rest))
        parts = (("update", table.update_s), ("data", table.data_s), ("gaps", table.gaps_s))
        rows += [self._plain(label, value_of(time)) for label, time in parts]
        rows += self._other(table)
        rows.append(self._plain("isolated layers, summed", value_of(table.isolated_sum_s), _TOTAL))
        return [row for row in rows if row is not None]

    def _label(self, label: str) -> str:
        return f"{self.name} · {label}" if self.name else label

    def _plain(self, label: str, value: Time, series: int = _NO_LAYER) -> BarRow | None:
        """Return the value, or nothing if it was not measured, such as data that lies on the device."""
        if not isinstance(value, Value):
            return None
        bar = (Segment(series=series, value=value),)
        return BarRow(label=self._label(label), bars=(bar,), note=seconds(value.middle))

    def _layers(self, label: str, layers: Sequence[LayerTimes]) -> BarRow | None:
        sums = [_total_s(layer.in_step[at][1] for layer in layers) for at in range(len(_PASSES))]
        bar = tuple(
            Segment(series=self.first + at, value=Value(middle=summed))
            for at, summed in enumerate(sums)
            if summed is not None
        )
        if not bar:
            return None
        return BarRow(label=self._label(label), bars=(bar,), note=seconds(sum(part.value.middle for part in bar)))

    def _other(self, table: LayerTable) -> list[BarRow | None]:
        known = [(part.name, value_of(part.s)) for part in table.other]
        shown, rest = costliest(known, lambda each: _middle(each[1]), _OTHERS_AT_MOST)
        rows = [self._plain(name, value) for name, value in shown]
        if rest:
            rows.append(
                self._plain(f"{len(rest):,} other things", Value(middle=sum(_middle(value) for _, value in rest)))
            )
        return rows


def _middle(time: Time) -> float:
    return 0.0 if isinstance(time, Absent) else time.middle
