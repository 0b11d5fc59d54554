"""The roofline: FLOP/s reached over FLOP per byte, under what this machine was measured to reach at most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from deepstone.measure.roofline import product_precision
from deepstone.report.figure import (
    Axis,
    Cloud,
    Figure,
    Line,
    NothingToDrawError,
    Plane,
    Point,
    Series,
    Table,
    Unit,
    Value,
)
from deepstone.report.figures import heading
from deepstone.report.figures.layer_times import PASSES
from deepstone.report.figures.numbers import value_cell
from deepstone.report.palette import BACKWARD, FORWARD
from deepstone.report.reading import Node
from deepstone.units import count, digits, percent

_HOW_TO: Final = "measure the ceilings with `deepstone doctor --peaks`, then the layers again"
_MARKERS: Final = {"forward": "circle", "backward": "diamond"}
_COLOURS: Final = {"forward": FORWARD, "backward": BACKWARD}
_NEAR: Final = 1.25  # ceilings that differ by less have no room for a name each
_ROOM: Final = 3.0  # on a logarithmic axis, beyond the outermost point


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ceilings:
    """What the machine does at most; the precision and the kind of memory access are its names."""

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
        """Lines so near to the next higher one that their names would lie over each other are named with that one."""
        names: dict[str, list[str]] = {}
        head, before = "", 0.0
        for name, rate in sorted(self.flops_per_s.items(), key=lambda each: -each[1]):
            if before == 0 or before / rate >= _NEAR:
                head = name
            names.setdefault(head, []).append(f"{name}: {count(rate, 'FLOP/s')}")
            before = rate
        return [(", ".join(names.get(name, ())), rate) for name, rate in self.flops_per_s.items()]

    def at(self, intensity: float, precision: str) -> float | None:
        """What a layer could reach at most, if the ceiling of its precision is known."""
        if precision not in self.flops_per_s:
            return None
        return min(self.flops_per_s[precision], intensity * max(self.bytes_per_s.values()))

    @property
    def ridges(self) -> list[float]:
        return [rate / width for rate in self.flops_per_s.values() for width in self.bytes_per_s.values()]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Dot:
    """One pass of one layer."""

    layer: str
    op: str
    part: str
    intensity: float
    reached: Value
    time_s: float


def roofline(result: Node) -> Figure:
    panels: list[Plane] = []
    rows: list[tuple[str, ...]] = []
    parts = heading.by_framework(result)
    for name, part in parts.items():
        ceilings, dots = _ceilings(part if part.has("peaks") else result), _dots(part)
        if not dots:
            raise NothingToDrawError(f"{name or 'this result'} has no layer with FLOPs, bytes and a time")
        panels.append(_panel(name, ceilings, dots))
        rows += [(*((name,) if name else ()), *_table_row(dot, ceilings, _precision(part))) for dot in dots]
    head = ("framework", "layer", "pass") if "" not in parts else ("layer", "pass")
    return Figure(
        name="roofline",
        model=result.text("model"),
        title="how near each layer comes to what the machine can do",
        subtitle=heading.subtitle(result),
        panels=tuple(panels),
        caption=(
            "Ceilings were measured on this machine, not taken from a data sheet.",
            "A convolution is above its ceiling where the library knows one of fewer operations (Winograd, FFT).",
            "FLOPs (2 per multiply-add) and bytes (each array read or written once) come from the layer graph.",
            "Where there is no room for every name, the layers that take longest have theirs.",
            *heading.failures(result),
        ),
        table=Table(headings=(*head, "FLOP/byte", "reached", "ceiling", "share"), rows=tuple(rows), words=len(head)),
        commands=heading.commands(result),
        doubts=heading.doubts(result),
    )


def _ceilings(result: Node) -> _Ceilings:
    if not result.has("peaks"):
        raise NothingToDrawError(f"this result does not hold the machine's ceilings; {_HOW_TO}")
    peaks = result.node("peaks")
    found = {key: _rates(peaks, key) for key in ("flops_per_s", "bytes_per_s")}
    for key, rates in found.items():
        if not rates:
            raise NothingToDrawError(f"peaks.{key} holds no ceiling; {_HOW_TO}")
    return _Ceilings(**found)


def _rates(peaks: Node, key: str) -> dict[str, float]:
    if not peaks.has(key):
        return {}
    rates = peaks.node(key)
    found = {name: rates.value(name) for name in rates.items}
    return {name: value.middle for name, value in found.items() if isinstance(value, Value) and value.middle > 0}


def _dots(result: Node) -> list[_Dot]:
    return [dot for layer in result.nodes("layers") for part in PASSES if (dot := _dot(layer, part)) is not None]


def _dot(layer: Node, part: str) -> _Dot | None:
    """From times within the step, or alone where there are no others."""
    if not layer.has("flops") or not layer.has("bytes"):
        return None
    time = layer.value(f"{part}_s")
    if not isinstance(time, Value) and layer.has("isolated"):
        time = layer.node("isolated").value(f"{part}_s")
    flops, volume = layer.node("flops").amount(part), layer.node("bytes").amount(part)
    if not isinstance(time, Value) or not isinstance(flops, float) or not isinstance(volume, float):
        return None
    if min(time.middle, flops, volume) <= 0:
        return None
    return _Dot(
        layer=layer.text("name"),
        op=layer.text("op", ""),
        part=part,
        intensity=flops / volume,
        reached=_rate(flops, time),
        time_s=time.middle,
    )


def _rate(flops: float, time: Value) -> Value:
    if time.low is None or time.high is None or time.low <= 0:
        return Value(middle=flops / time.middle)
    return Value(middle=flops / time.middle, low=flops / time.high, high=flops / time.low)


def _panel(name: str, ceilings: _Ceilings, dots: list[_Dot]) -> Plane:
    places = [*(dot.intensity for dot in dots), *ceilings.ridges]
    return Plane(
        title=name or "Roofline",
        x=Axis(label="arithmetic intensity", unit=Unit.FLOPS_PER_BYTE, log=True),
        y=Axis(label="reached", unit=Unit.FLOPS_PER_S, log=True),
        lines=ceilings.lines(min(places) / _ROOM, max(places) * _ROOM),
        clouds=tuple(
            Cloud(
                series=Series(name=part, colour=_COLOURS[part]),
                marker=_MARKERS[part],
                points=tuple(
                    Point(label=dot.layer, x=dot.intensity, y=dot.reached, weight=dot.time_s)
                    for dot in dots
                    if dot.part == part
                ),
            )
            for part in PASSES
        ),
    )


def _precision(result: Node) -> str:
    """In which this result was measured, if it tells."""
    setup = result.node("setup") if result.has("setup") else Node({})
    effective = setup.named_nodes("effective") if setup.has("effective") else {}
    return effective["precision"].text("value", "") if "precision" in effective else ""


def _table_row(dot: _Dot, ceilings: _Ceilings, precision: str) -> tuple[str, ...]:
    limit = ceilings.at(dot.intensity, product_precision(precision, dot.op))
    reached = value_cell(dot.reached, lambda rate: count(rate, "FLOP/s"))
    told = (count(limit, "FLOP/s"), percent(dot.reached.middle / limit)) if limit else ("not known", "")
    return (dot.layer, dot.part, digits(dot.intensity), reached, *told)
