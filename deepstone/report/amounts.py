"""A number of each unit as people read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from deepstone.report.figure import Unit
from deepstone.units import bytes_, count, digits, percent, seconds

SHOWN: Final[Mapping[Unit, Callable[[float], str]]] = {
    Unit.SECONDS: seconds,
    Unit.BYTES: bytes_,
    Unit.FLOPS_PER_S: lambda value: count(value, "FLOP/s"),
    Unit.FLOPS_PER_BYTE: lambda value: f"{digits(value)} FLOP/byte",
    Unit.BYTES_PER_S: lambda value: count(value, "B/s"),
    Unit.IMAGES_PER_S: lambda value: f"{digits(value)} images/s",
    Unit.RATIO: lambda value: f"{digits(value)}×",
    Unit.SHARE: percent,
    Unit.YEAR: lambda value: f"{value:.0f}",
    Unit.NUMBER: digits,
}
