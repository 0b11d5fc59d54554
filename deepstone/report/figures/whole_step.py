"""The panel above the layers: what the whole step is made of. It has an axis of its own, since its bars are long."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from deepstone.report.figure import Axis, BarRow, Bars, Segment, Series, Unit, Value
from deepstone.report.figures.costliest import costliest
from deepstone.report.figures.layer_times import PASSES, LayerTimes, total
from deepstone.report.palette import BACKWARD, FORWARD, OTHER, TOTAL, hue, paler
from deepstone.report.reading import Node
from deepstone.units import seconds

_TOTAL: Final = 0  # where these stand among the series
_NO_LAYER: Final = 1
_OTHERS_AT_MOST: Final = 8
_PARTS: Final = (("update", "update_s"), ("data", "data_s"), ("gaps", "gaps_s"))


def whole_step(
    results: Mapping[str, Node], layers: Mapping[str, Sequence[LayerTimes]], others: Collection[str]
) -> Bars:
    """Each framework has rows of its own, which follow each other."""
    single = "" in results
    series = [Series(name="total", colour=TOTAL), Series(name="not of a layer", colour=OTHER)]
    rows: list[BarRow] = []
    for position, (name, result) in enumerate(results.items()):
        first = len(series)
        colours = (FORWARD, BACKWARD) if single else (hue(position), paler(hue(position)))
        series += [
            Series(name=f"{name} {part}".strip(), colour=colour) for part, colour in zip(PASSES, colours, strict=True)
        ]
        rows += _Rows(name=name, first=first, others=others).of(result, layers[name])
    return Bars(
        title="The whole step",
        axis=Axis(label="time per step", unit=Unit.SECONDS),
        series=tuple(series),
        rows=tuple(rows),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rows:
    """`first` is where the framework's forward and backward stand among the series."""

    name: str
    first: int
    others: Collection[str]

    def of(self, result: Node, layers: Sequence[LayerTimes]) -> list[BarRow]:
        rows = [self._plain("step, not traced", result.value("step_s"), _TOTAL)]
        rows.append(self._layers(f"all {len(layers):,} layers", layers))
        if self.others:
            shown = [layer for layer in layers if layer.name not in self.others]
            rows.append(self._layers(f"the {len(shown):,} layers below", shown))
            rest = [layer for layer in layers if layer.name in self.others]
            rows.append(self._layers(f"the other {len(rest):,} layers", rest))
        rows += [self._plain(label, result.value(key)) for label, key in _PARTS]
        rows += self._other(result)
        rows.append(self._plain("each layer alone, summed", result.value("isolated_sum_s"), _TOTAL))
        return [row for row in rows if row is not None]

    def _label(self, label: str) -> str:
        return f"{self.name} · {label}" if self.name else label

    def _plain(self, label: str, value: object, series: int = _NO_LAYER) -> BarRow | None:
        """Nothing where nothing was measured: data, say, when it lies on the device."""
        if not isinstance(value, Value):
            return None
        bar = (Segment(series=series, value=value),)
        return BarRow(label=self._label(label), bars=(bar,), note=seconds(value.middle))

    def _layers(self, label: str, layers: Sequence[LayerTimes]) -> BarRow | None:
        sums = [total(layer.in_step[at][1] for layer in layers) for at in range(len(PASSES))]
        bar = tuple(
            Segment(series=self.first + at, value=Value(middle=summed))
            for at, summed in enumerate(sums)
            if summed is not None
        )
        if not bar:
            return None
        return BarRow(label=self._label(label), bars=(bar,), note=seconds(sum(part.value.middle for part in bar)))

    def _other(self, result: Node) -> list[BarRow | None]:
        if not result.has("other"):
            return []
        found = [(node.text("name"), node.value("s")) for node in result.nodes("other")]
        known = [(name, value) for name, value in found if isinstance(value, Value)]
        shown, rest = costliest(known, lambda each: each[1].middle, _OTHERS_AT_MOST)
        rows = [self._plain(name, value) for name, value in shown]
        if rest:
            rows.append(self._plain(f"{len(rest):,} other things", Value(middle=sum(each[1].middle for each in rest))))
        return rows
