"""The use of memory, layer by layer, and the total predicted against measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deepstone.absent import Absent
from deepstone.report import palette
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.figures import captions
from deepstone.report.figures.captions import costliest, others_in_words
from deepstone.report.panels import Axis, BarChart, BarRow, Segment, Series
from deepstone.report.table import TableCell, Unit, Value, name_columns, number_columns
from deepstone.results.findings import Finding
from deepstone.results.memory import LayerMemory, MemoryUse, PredictedMemory
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
_HOW_TO: Final = "`deepstone memory` measures it"


def memory(finding: Finding) -> Figure:
    panels: list[BarChart] = []
    caption_lines: list[str] = []
    rows: dict[str, list[tuple[TableCell, ...]]] = {}
    for name, use in captions.contents(finding, MemoryUse).items():
        predicted, layers = _by_layer(use, name or "this result")
        shown, others = costliest(layers, _total)
        begin = f"{name}: " if name else ""
        panels += [_whole(begin, use, predicted, layers, others), _layers(begin, shown, some=bool(others))]
        caption_lines += [
            f"{begin}{line}" for line in [*others_in_words(shown, others), *_compared(use, predicted, layers)]
        ]
        rows[name] = [(layer.name, layer.op, *_kinds(layer), _total(layer)) for layer in layers]
    columns = (*name_columns("layer", "op"), *number_columns(Unit.BYTES, *_KINDS, "total"))
    return captions.finding_figure(
        finding,
        "memory",
        "what memory is used for",
        panels=panels,
        caption=(*caption_lines, *captions.failures(finding)),
        table=captions.table_by_framework(columns, rows),
    )


def _by_layer(use: MemoryUse, who: str) -> tuple[PredictedMemory | None, Sequence[LayerMemory]]:
    """Return the layers. A user's own module has no prediction, so its layers are as measured in a step."""
    if use.predicted is None or (not use.layers and not isinstance(use.predicted, Absent)):
        raise NothingToDrawError(f"{who} does not hold memory by layer; {_HOW_TO}")
    if not isinstance(use.predicted, Absent):
        return use.predicted, use.layers or ()
    if not use.layers:
        raise NothingToDrawError(f"{who} has no prediction by layer: {use.predicted.reason}")
    return None, use.layers


def _kinds(sizes: LayerMemory | PredictedMemory) -> tuple[int | Absent, ...]:
    """Return the sizes in the order of the series."""
    return (
        sizes.parameters_bytes,
        sizes.gradients_bytes,
        sizes.optimizer_bytes,
        sizes.activations_bytes,
        sizes.workspace_bytes,
    )


def _total(layer: LayerMemory) -> int:
    return sum(part for part in _kinds(layer) if not isinstance(part, Absent))


def _stack(kinds: Sequence[int | Absent]) -> tuple[Segment, ...]:
    return tuple(
        Segment(series=at, value=Value(middle=float(part)))
        for at, part in enumerate(kinds)
        if not isinstance(part, Absent) and part
    )


def _whole(
    begin: str,
    use: MemoryUse,
    predicted: PredictedMemory | None,
    layers: Sequence[LayerMemory],
    others: Sequence[LayerMemory],
) -> BarChart:
    if predicted is None:
        rows = [_together("all layers", layers)]
    else:
        rows = [BarRow(label="predicted", bars=(_stack(_kinds(predicted)),), note=bytes_(predicted.total_bytes))]
    measured = use.measured_peak_bytes
    if isinstance(measured, int):
        bar = (Segment(series=len(_SERIES), value=Value(middle=float(measured))),)
        rows.append(BarRow(label="measured peak", bars=(bar,), note=bytes_(measured)))
    if others:
        rows.append(_together(f"the other {len(others):,} layers", others))
    return BarChart(title=f"{begin}All layers together", axis=_AXIS, series=(*_SERIES, _MEASURED), rows=tuple(rows))


def _together(label: str, layers: Sequence[LayerMemory]) -> BarRow:
    kinds = [_kinds(layer)[:-1] for layer in layers]  # layers use their workspaces in turn, so they have no sum
    summed = [sum(part for part in each if not isinstance(part, Absent)) for each in zip(*kinds, strict=True)]
    return BarRow(label=label, bars=(_stack(summed),), note=bytes_(sum(summed)))


def _layers(begin: str, shown: Sequence[LayerMemory], *, some: bool) -> BarChart:
    rows = [BarRow(label=layer.name, bars=(_stack(_kinds(layer)),), note=bytes_(_total(layer))) for layer in shown]
    title = f"The {len(shown)} largest layers" if some else "Layer by layer"
    return BarChart(title=f"{begin}{title}, in the order of the network", axis=_AXIS, series=_SERIES, rows=tuple(rows))


def _compared(use: MemoryUse, predicted: PredictedMemory | None, layers: Sequence[LayerMemory]) -> list[str]:
    """Compare the prediction with the measurement, and list what is missing for it."""
    lines: list[str] = []
    measured = use.measured_peak_bytes
    if isinstance(measured, Absent):
        lines.append(f"The peak was not measured: {measured.reason}.")
    elif measured and predicted is not None:
        lines.append(f"Predicted is {percent(predicted.total_bytes / measured)} of the measured peak.")
    if not all(isinstance(layer.workspace_bytes, Absent) for layer in layers):
        lines.append("Workspace was measured while each layer ran; the prediction and sums of layers leave it out.")
    elif predicted is not None and isinstance(predicted.workspace_bytes, Absent):
        lines.append(f"Workspace is not known: {predicted.workspace_bytes.reason}.")
    how = "Seen in a step of the module" if predicted is None else "Predicted from the layer graph"
    return [*lines, f"{how}; activations are those kept for the backward pass."]
