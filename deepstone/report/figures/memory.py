"""What memory is used for, layer by layer, and the total predicted against measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deepstone.absent import Absent
from deepstone.report import palette
from deepstone.report.figure import Axis, BarRow, Bars, Figure, NothingToDrawError, Segment, Series, Table, Unit, Value
from deepstone.report.figures import heading
from deepstone.report.figures.costliest import costliest, others_in_words
from deepstone.report.figures.numbers import bytes_cell
from deepstone.report.reading import Node
from deepstone.units import bytes_, percent

_KINDS: Final = {
    "parameters": palette.PARAMETERS,
    "gradients": palette.GRADIENTS,
    "optimizer": palette.OPTIMIZER,
    "activations": palette.ACTIVATIONS,
    "workspace": palette.WORKSPACE,
}
_SERIES: Final = tuple(
    Series(name="activations kept" if kind == "activations" else kind, colour=colour) for kind, colour in _KINDS.items()
)
_MEASURED: Final = Series(name="measured peak", colour=palette.MEASURED)
_AXIS: Final = Axis(label="memory", unit=Unit.BYTES)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Layer:
    name: str
    op: str
    kinds: tuple[float | Absent, ...]

    @property
    def total_bytes(self) -> float:
        return sum(part for part in self.kinds if isinstance(part, float))


def memory(result: Node) -> Figure:
    """From a result of its own kind, or from the memory within one of layers."""
    parts = {name: _part(node, name) for name, node in heading.by_framework(result).items()}
    layers = {name: [_layer(node) for node in part.nodes("layers")] for name, part in parts.items()}
    if not all(layers.values()):
        raise NothingToDrawError("this result does not hold memory by layer; `deepstone memory` measures it")
    panels: list[Bars] = []
    told: list[str] = []
    rows: list[tuple[str, ...]] = []
    for name, part in parts.items():
        shown, others = costliest(layers[name], lambda layer: layer.total_bytes)
        begin = f"{name}: " if name else ""
        panels += [_whole(begin, part, len(shown), others), _layers(begin, shown, some=bool(others))]
        told += [f"{begin}{line}" for line in [*others_in_words(shown, others), *_compared(part)]]
        rows += [(*((name,) if name else ()), *_table_row(layer)) for layer in layers[name]]
    head = ("framework", "layer", "op") if "" not in parts else ("layer", "op")
    return Figure(
        name="memory",
        model=result.text("model"),
        title="what memory is used for",
        subtitle=heading.subtitle(result),
        panels=tuple(panels),
        caption=(
            *told,
            *heading.failures(result),
            "Predicted from the layer graph; activations are those kept for the backward pass.",
        ),
        table=Table(headings=(*head, *_KINDS, "total"), rows=tuple(rows), words=len(head)),
        commands=heading.commands(result),
        doubts=heading.doubts(result),
    )


def _part(result: Node, name: str) -> Node:
    who = name or "this result"
    if result.text("kind", "layers") == "layers":
        if not result.has("memory"):
            raise NothingToDrawError(f"{who} does not hold memory by layer; `deepstone memory` measures it")
        result = result.node("memory")
    if not result.has("predicted"):
        raise NothingToDrawError(f"{who} has no prediction by layer: {result.why_absent('predicted')}")
    return result


def _layer(node: Node) -> _Layer:
    return _Layer(
        name=node.text("name"), op=node.text("op", ""), kinds=tuple(node.amount(f"{kind}_bytes") for kind in _KINDS)
    )


def _stack(kinds: tuple[float | Absent, ...]) -> tuple[Segment, ...]:
    return tuple(
        Segment(series=at, value=Value(middle=part))
        for at, part in enumerate(kinds)
        if isinstance(part, float) and part
    )


def _whole(begin: str, part: Node, shown: int, others: list[_Layer]) -> Bars:
    predicted = part.node("predicted")
    kinds = tuple(predicted.amount(f"{kind}_bytes") for kind in _KINDS)
    rows = [BarRow(label="predicted", bars=(_stack(kinds),), note=bytes_(predicted.number("total_bytes")))]
    measured = part.amount("measured_peak_bytes")
    if isinstance(measured, float):
        bar = (Segment(series=len(_SERIES), value=Value(middle=measured)),)
        rows.append(BarRow(label="measured peak", bars=(bar,), note=bytes_(measured)))
    if others:
        summed = tuple(_summed([layer.kinds[at] for layer in others]) for at in range(len(_KINDS) - 1))
        note = bytes_(sum(part for part in summed if isinstance(part, float)))
        rows.append(BarRow(label=f"the other {len(others):,} layers", bars=(_stack(summed),), note=note))
    return Bars(title=f"{begin}All layers together", axis=_AXIS, series=(*_SERIES, _MEASURED), rows=tuple(rows))


def _summed(parts: list[float | Absent]) -> float | Absent:
    known = [part for part in parts if isinstance(part, float)]
    return sum(known) if known else Absent("of no layer known")


def _layers(begin: str, shown: list[_Layer], *, some: bool) -> Bars:
    rows = [BarRow(label=layer.name, bars=(_stack(layer.kinds),), note=bytes_(layer.total_bytes)) for layer in shown]
    title = f"The {len(shown)} largest layers" if some else "Layer by layer"
    return Bars(title=f"{begin}{title}, in the order of the network", axis=_AXIS, series=_SERIES, rows=tuple(rows))


def _compared(part: Node) -> list[str]:
    """The prediction against what was measured, and what is missing for it."""
    lines: list[str] = []
    measured = part.amount("measured_peak_bytes")
    if isinstance(measured, Absent):
        lines.append(f"The peak was not measured: {measured.reason}.")
    elif measured:
        lines.append(
            f"Predicted is {percent(part.node('predicted').number('total_bytes') / measured)} of the measured peak."
        )
    if any(layer.has("workspace_bytes") for layer in part.nodes("layers")):
        lines.append("Workspace was measured while each layer ran; the prediction and sums of layers leave it out.")
    else:
        lines.append(f"Workspace is not known: {part.node('predicted').why_absent('workspace_bytes')}.")
    return lines


def _table_row(layer: _Layer) -> tuple[str, ...]:
    return (layer.name, layer.op, *(bytes_cell(part) for part in layer.kinds), bytes_(layer.total_bytes))
