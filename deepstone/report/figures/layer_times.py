"""The times of layers in one framework's result: within the step, and each layer isolated."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from deepstone.absent import Absent
from deepstone.report.figure import Axis, BarChart, BarRow, Segment, Series, Unit, Value, value_of
from deepstone.report.figures.captions import costliest
from deepstone.report.palette import BACKWARD, FORWARD, OTHER, TOTAL, hue, paler
from deepstone.results.layers import IsolatedLayer, LayerRow, LayerTable
from deepstone.units import seconds

PASSES: Final = ("forward", "backward")
_NOT_IN_STEP: Final = Absent("not timed within the step")

Time = Value | Absent
_TOTAL: Final = 0  # where these stand among the series
_NO_LAYER: Final = 1
_OTHERS_AT_MOST: Final = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerTimes:
    """`isolated` has data and weight gradient apart where they were measured so, and backward where they were not."""

    name: str
    op: str
    in_step: tuple[tuple[str, Time], ...]
    isolated: tuple[tuple[str, Time], ...]
    share: float

    @property
    def step_s(self) -> float | None:
        return total(time for _, time in self.in_step)

    @property
    def isolated_s(self) -> float | None:
        return total(time for _, time in self.isolated)

    @property
    def cost_s(self) -> float:
        return self.step_s or self.isolated_s or 0.0

    @property
    def why_absent(self) -> str:
        return next((time.reason for _, time in (*self.in_step, *self.isolated) if isinstance(time, Absent)), "")


def layer_times(table: LayerTable) -> list[LayerTimes]:
    """Where layers were timed isolated only, a result repeats those times as its own; they are not of the step."""
    in_step = not isinstance(table.sum_s, Absent)
    return [_layer(row, in_step=in_step) for row in table.layers]


def total(times: Iterable[Time]) -> float | None:
    """The sum of what was measured; None when nothing was."""
    known = [time.middle for time in times if isinstance(time, Value)]
    return sum(known) if known else None


def _layer(row: LayerRow, *, in_step: bool) -> LayerTimes:
    times = {"forward": value_of(row.forward_s), "backward": value_of(row.backward_s)}
    return LayerTimes(
        name=row.name,
        op=row.op,
        in_step=tuple((name, time if in_step else _NOT_IN_STEP) for name, time in times.items()),
        isolated=() if isinstance(row.isolated, Absent) else _isolated(row.isolated),
        share=row.share,
    )


def _isolated(row: IsolatedLayer) -> tuple[tuple[str, Time], ...]:
    gradients = {"data gradient": value_of(row.data_s), "weight gradient": value_of(row.weight_s)}
    apart = [(name, time) for name, time in gradients.items() if isinstance(time, Value)]
    return (("forward", value_of(row.forward_s)), *(apart or [("backward", value_of(row.backward_s))]))


def whole_step(
    tables: Mapping[str, LayerTable], layers: Mapping[str, Sequence[LayerTimes]], others: Collection[str]
) -> BarChart:
    """Each framework has rows of its own, which follow each other."""
    single = "" in tables
    series = [Series(name="total", colour=TOTAL), Series(name="not of a layer", colour=OTHER)]
    rows: list[BarRow] = []
    for position, (name, table) in enumerate(tables.items()):
        first = len(series)
        colours = (FORWARD, BACKWARD) if single else (hue(position), paler(hue(position)))
        series += [
            Series(name=f"{name} {part}".strip(), colour=colour) for part, colour in zip(PASSES, colours, strict=True)
        ]
        rows += _Rows(name=name, first=first, others=others).of(table, layers[name])
    return BarChart(
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
