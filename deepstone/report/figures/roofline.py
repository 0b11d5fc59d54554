"""The roofline: FLOP/s reached over FLOP per byte, under the measured ceilings of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.measure.roofline import product_precision
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.figures import captions
from deepstone.report.figures.captions import missing_whiskers
from deepstone.report.palette import BACKWARD, FORWARD
from deepstone.report.panels import Axis, Line, Point, PointGroup, ScatterPlot, Series
from deepstone.report.table import TableCell, Unit, Value, name_columns, number_columns, value_of
from deepstone.results.findings import Finding
from deepstone.results.layers import LayerRow, LayerTable
from deepstone.results.quantity import Quantity
from deepstone.results.record import Setup
from deepstone.units import count

_HOW_TO: Final = "measure the ceilings with `deepstone doctor --peaks`, then the layers again"
_SERIES: Final = (
    Series(name="forward", colour=FORWARD),
    Series(name="backward", colour=BACKWARD, marker="diamond"),
)
_NUMBERS: Final = (
    *number_columns(Unit.FLOPS_PER_BYTE, "intensity"),
    *number_columns(Unit.FLOPS_PER_S, "reached", "ceiling"),
    *number_columns(Unit.SHARE, "share"),
)
_NO_CEILING: Final = Absent("the ceiling of this precision is not known")
_NEAR: Final = 1.25  # closer ceilings have no room for two names
_ROOM: Final = 3.0  # on a logarithmic axis, beyond the outermost point


class _Ceilings(Struct, frozen=True, kw_only=True):
    """The ceilings of the machine, named by precision and kind of memory access."""

    flops_per_s: Mapping[str, float]
    bytes_per_s: Mapping[str, float]

    def lines(self, x_low: float, x_high: float) -> tuple[Line, ...]:
        top = max(self.flops_per_s.values())
        widest = max(self.bytes_per_s.values())
        slanted = [
            Line(label=f"memory, {name}: {count(rate, 'B/s')}", points=((x_low, x_low * rate), (top / rate, top)))
            for name, rate in self.bytes_per_s.items()
        ]
        flat = [
            Line(label=label, points=((rate / widest, rate), (x_high, rate))) for label, rate in self._level_names()
        ]
        return (*slanted, *flat)

    def _level_names(self) -> list[tuple[str, float]]:
        """Return the names of lines; lines too close to the next higher one share its name."""
        names: dict[str, list[str]] = {}
        head, before = "", 0.0
        for name, rate in sorted(self.flops_per_s.items(), key=lambda each: -each[1]):
            if before == 0 or before / rate >= _NEAR:
                head = name
            names.setdefault(head, []).append(f"{name}: {count(rate, 'FLOP/s')}")
            before = rate
        return [(", ".join(names.get(name, ())), rate) for name, rate in self.flops_per_s.items()]

    def at(self, intensity: float, precision: str) -> float | None:
        """Return the highest rate that a layer can reach, if the ceiling of its precision is known."""
        if precision not in self.flops_per_s:
            return None
        return min(self.flops_per_s[precision], intensity * max(self.bytes_per_s.values()))

    @property
    def ridges(self) -> list[float]:
        return [rate / width for rate in self.flops_per_s.values() for width in self.bytes_per_s.values()]


class _Dot(Struct, frozen=True, kw_only=True):
    """One pass of one layer."""

    layer: str
    op: str
    part: str
    intensity: float
    reached: Value
    time_s: float


def roofline(finding: Finding) -> Figure:
    panels: list[ScatterPlot] = []
    rows: dict[str, list[tuple[TableCell, ...]]] = {}
    tables = captions.contents(finding, LayerTable)
    for name, part in captions.by_framework(finding).items():
        ceilings, dots = _ceilings(tables[name]), _dots(tables[name])
        if not dots:
            raise NothingToDrawError(f"{name or 'this result'} has no layer with FLOPs, bytes and a time")
        panels.append(_panel(name, ceilings, dots))
        precision = "" if part.setup is None else _precision(part.setup)
        rows[name] = [_table_row(dot, ceilings, precision) for dot in dots]
    return captions.finding_figure(
        finding,
        "roofline",
        "how near each layer comes to what the machine can do",
        panels=panels,
        caption=(
            "Ceilings were measured on this machine, not taken from a data sheet.",
            "A convolution is above its ceiling where the library knows one of fewer operations (Winograd, FFT).",
            "FLOPs (2 per multiply-add) and bytes (each array read or written once) come from the layer graph.",
            "Where there is no room for every name, the layers that take longest have theirs.",
            *missing_whiskers(panels),
            *captions.failures(finding),
        ),
        table=captions.table_by_framework((*name_columns("layer", "pass"), *_NUMBERS), rows),
    )


def _ceilings(table: LayerTable) -> _Ceilings:
    if isinstance(table.peaks, Absent):
        raise NothingToDrawError(f"this result does not hold the machine's ceilings; {_HOW_TO}")
    flops_per_s, bytes_per_s = _rates(table.peaks.flops_per_s), _rates(table.peaks.bytes_per_s)
    for key, rates in (("flops_per_s", flops_per_s), ("bytes_per_s", bytes_per_s)):
        if not rates:
            raise NothingToDrawError(f"peaks.{key} holds no ceiling; {_HOW_TO}")
    return _Ceilings(flops_per_s=flops_per_s, bytes_per_s=bytes_per_s)


def _rates(rates: Mapping[str, Quantity | Absent]) -> dict[str, float]:
    return {name: rate.median for name, rate in rates.items() if isinstance(rate, Quantity) and rate.median > 0}


def _dots(table: LayerTable) -> list[_Dot]:
    return [dot for layer in table.layers for dot in (_dot(layer, "forward"), _dot(layer, "backward")) if dot]


def _dot(layer: LayerRow, part: Literal["forward", "backward"]) -> _Dot | None:
    """Return the dot from times within the step, or from isolated times if there are no others."""
    if isinstance(layer.flops, Absent) or isinstance(layer.bytes, Absent):
        return None
    forward = part == "forward"
    time = value_of(layer.forward_s if forward else layer.backward_s)
    if isinstance(time, Absent) and not isinstance(layer.isolated, Absent):
        time = value_of(layer.isolated.forward_s if forward else layer.isolated.backward_s)
    flops = layer.flops.forward if forward else layer.flops.backward
    volume = layer.bytes.forward if forward else layer.bytes.backward
    if isinstance(time, Absent) or min(time.middle, flops, volume) <= 0:
        return None
    return _Dot(
        layer=layer.name,
        op=layer.op,
        part=part,
        intensity=flops / volume,
        reached=_rate(flops, time),
        time_s=time.middle,
    )


def _rate(flops: float, time: Value) -> Value:
    if time.low is None or time.high is None or time.low <= 0:
        return Value(middle=flops / time.middle, no_interval=time.no_interval)
    return Value(middle=flops / time.middle, low=flops / time.high, high=flops / time.low)


def _panel(name: str, ceilings: _Ceilings, dots: list[_Dot]) -> ScatterPlot:
    places = [*(dot.intensity for dot in dots), *ceilings.ridges]
    return ScatterPlot(
        title=name or "Roofline",
        x=Axis(label="arithmetic intensity", unit=Unit.FLOPS_PER_BYTE, log=True),
        y=Axis(label="reached", unit=Unit.FLOPS_PER_S, log=True),
        lines=ceilings.lines(min(places) / _ROOM, max(places) * _ROOM),
        groups=tuple(
            PointGroup(
                series=series,
                points=tuple(
                    Point(label=dot.layer, x=dot.intensity, y=dot.reached, weight=dot.time_s)
                    for dot in dots
                    if dot.part == series.name
                ),
            )
            for series in _SERIES
        ),
    )


def _precision(setup: Setup) -> str:
    """Return the precision of the result, if it is known."""
    return str(setup.effective["precision"].value) if "precision" in setup.effective else ""


def _table_row(dot: _Dot, ceilings: _Ceilings, precision: str) -> tuple[TableCell, ...]:
    limit = ceilings.at(dot.intensity, product_precision(precision, dot.op))
    against = (limit, dot.reached.middle / limit) if limit else (_NO_CEILING, _NO_CEILING)
    return (dot.layer, dot.part, dot.intensity, dot.reached, *against)
