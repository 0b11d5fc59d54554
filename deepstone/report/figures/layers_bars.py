"""Bars per layer: forward and backward stacked, within the step and alone, or framework against framework."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from deepstone.report.figure import Axis, BarRow, Bars, Figure, NothingToDrawError, Segment, Series, Table, Unit, Value
from deepstone.report.figures import heading
from deepstone.report.figures.costliest import costliest, others_in_words
from deepstone.report.figures.layer_times import PASSES, LayerTimes, Time, layer_times
from deepstone.report.figures.numbers import share, share_cell, time_cell
from deepstone.report.figures.whole_step import whole_step
from deepstone.report.palette import BACKWARD, DATA_GRADIENT, FORWARD, WEIGHT_GRADIENT, hue, paler
from deepstone.report.reading import Node
from deepstone.report.wording import shortened
from deepstone.units import percent, seconds

_REASON_ROOM: Final = 48
_WHISKERS: Final = "Lines across the ends of bars are 95 % intervals; sums of several layers have none."


def layers_bars(result: Node) -> Figure:
    parts = {name: layer_times(part) for name, part in heading.by_framework(result).items()}
    names = list(dict.fromkeys(layer.name for layers in parts.values() for layer in layers))
    if not names:
        raise NothingToDrawError("this result has no layers; measure some with `deepstone layers`")
    found = {name: {layer.name: layer for layer in layers} for name, layers in parts.items()}
    shown, others = costliest(names, lambda name: max(each[name].cost_s for each in found.values() if name in each))
    legend = _single_legend(parts[""]) if "" in parts else _legend_of_frameworks(parts)
    rows = tuple(_row(name, found, legend) for name in shown)
    title = f"The {len(shown)} costliest layers" if others else "Layer by layer"
    whole = whole_step(heading.by_framework(result), parts, frozenset(others))
    layers = Bars(
        title=f"{title}, in the order of the network",
        axis=Axis(label="time per step", unit=Unit.SECONDS),
        series=tuple(legend.values()),
        rows=rows,
    )
    return Figure(
        name="bars",
        model=result.text("model"),
        title="where the time of a step goes",
        subtitle=heading.subtitle(result),
        panels=(whole, layers) if whole.rows else (layers,),
        caption=(*others_in_words(shown, others), *_how(result), *heading.failures(result), _WHISKERS),
        table=_table(parts),
        commands=heading.commands(result),
        doubts=heading.doubts(result),
    )


# A legend by bar and part, such as ("in the step", "forward"), in the order of drawing.
_Legend = dict[tuple[str, str], Series]


def _single_legend(layers: Sequence[LayerTimes]) -> _Legend:
    """Two bars a row where there are times of both kinds; only entries that some layer has."""
    in_step = {"forward": FORWARD, "backward": BACKWARD}
    alone = {
        "forward": paler(FORWARD),
        "backward": paler(BACKWARD),
        "data gradient": DATA_GRADIENT,
        "weight gradient": WEIGHT_GRADIENT,
    }
    used_in_step = {part for layer in layers for part, time in layer.in_step if isinstance(time, Value)}
    used_alone = {part for layer in layers for part, time in layer.alone if isinstance(time, Value)}
    legend: _Legend = {
        ("in the step", part): Series(name=part, colour=colour)
        for part, colour in in_step.items()
        if part in used_in_step
    }
    for part, colour in alone.items():
        if part in used_alone:
            legend["alone", part] = Series(name=f"{part}, layer alone", colour=colour)
    return legend


def _legend_of_frameworks(parts: Mapping[str, Sequence[LayerTimes]]) -> _Legend:
    """One bar a row for each framework. One that has no times within the step is told to be of layers alone."""
    legend: _Legend = {}
    for position, (name, layers) in enumerate(parts.items()):
        where = "" if _measured_in_step(layers) else ", layer alone"
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
        times = {"in the step": layer.in_step, "alone": layer.alone}
        bars = tuple(_segments(times[bar], bar, places) for bar in kinds)
        return BarRow(label=name, bars=bars, note=_note(layer))
    layers = {framework: each.get(name) for framework, each in found.items()}
    bars = tuple(_segments(_both_passes(layer), framework, places) for framework, layer in layers.items())
    return BarRow(label=name, bars=bars)


def _both_passes(layer: LayerTimes | None) -> Iterable[tuple[str, Time]]:
    """Within the step, or alone; gradients that were measured apart are the backward pass together."""
    if layer is None:
        return ()
    if layer.step_s is not None or not layer.alone:
        return layer.in_step
    backward = [time.middle for part, time in layer.alone if part != "forward" and isinstance(time, Value)]
    forward = [(part, time) for part, time in layer.alone if part == "forward"]
    return [*forward, *([("backward", Value(middle=sum(backward)))] if backward else [])]


def _segments(
    times: Iterable[tuple[str, Time]], bar: str, places: Mapping[tuple[str, str], int]
) -> tuple[Segment, ...]:
    return tuple(Segment(series=places[bar, part], value=time) for part, time in times if isinstance(time, Value))


def _note(layer: LayerTimes) -> str:
    if layer.step_s is None:
        return seconds(layer.alone_s) if layer.alone_s is not None else shortened(layer.why_absent, _REASON_ROOM)
    told = f" · {share(layer.share)}" if isinstance(layer.share, float) else ""
    return f"{seconds(layer.step_s)}{told}"


def _how(result: Node) -> list[str]:
    """How layers were timed, what became of shared time, and how much of the step all of it explains."""
    lines: list[str] = []
    for name, part in heading.by_framework(result).items():
        told = [f"timed by {part.sentence('method')}"] if part.has("method") else []
        told += [part.sentence("rule")] if part.has("rule") else []
        explained = part.value("explained")
        if isinstance(explained, Value):
            told.append(f"all measured parts are {percent(explained.middle)} of the untraced step")
        if told:
            lines.append(f"{name or 'Layers'}: {'; '.join(words.rstrip('.') for words in told)}.")
    return lines


def _table(parts: Mapping[str, Sequence[LayerTimes]]) -> Table:
    several = "" not in parts
    kinds = list(dict.fromkeys(part for layers in parts.values() for layer in layers for part, _ in layer.alone))
    head = ("framework", "layer", "op") if several else ("layer", "op")
    headings = (*head, *PASSES, "share", *(f"{kind}, alone" for kind in kinds))
    rows = [
        (
            *((framework,) if several else ()),
            layer.name,
            layer.op,
            *(time_cell(time) for _, time in layer.in_step),
            share_cell(layer.share),
            *(time_cell(dict(layer.alone).get(kind)) for kind in kinds),
        )
        for framework, layers in parts.items()
        for layer in layers
    ]
    return Table(headings=headings, rows=tuple(rows), words=len(head))
