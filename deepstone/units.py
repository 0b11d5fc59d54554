"""Quantities as people read them. Inside the program everything is SI; only these functions format."""

from __future__ import annotations

import math

_TIME_STEPS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SI_STEPS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY_STEPS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def digits(value: float, significant: int = 3) -> str:
    """A number with so many significant digits, never in exponent form: 1234.5 -> 1,234 and 0.01234 -> 0.0123."""
    rounded = _rounded(value, significant)
    if rounded == 0:
        return "0"
    places = max(0, significant - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{places}f}"


def _rounded(value: float, significant: int = 3) -> float:
    """To so many digits, but never before the point: 12345.6 -> 12346."""
    if value == 0 or not math.isfinite(value):
        return value
    return round(value, max(0, significant - 1 - math.floor(math.log10(abs(value)))))


def seconds(value_s: float) -> str:
    for scale, unit in _TIME_STEPS:
        if abs(_rounded(value_s / scale)) >= 1:
            return f"{digits(value_s / scale)} {unit}"
    return f"{digits(value_s / 1e-9)} ns" if value_s else "0 s"


def count(value: float, unit: str = "") -> str:
    """1234567 -> 1.23 M."""
    for scale, prefix in _SI_STEPS:
        if abs(_rounded(value / scale)) >= 1:
            return f"{digits(value / scale)} {prefix}{unit}"
    return f"{digits(value)} {unit}".rstrip()


def bytes_(value_bytes: float) -> str:
    for scale, unit in _BINARY_STEPS:
        if abs(_rounded(value_bytes / scale)) >= 1:
            return f"{digits(value_bytes / scale)} {unit}"
    return f"{value_bytes:.0f} B"


def percent(share: float, significant: int = 2) -> str:
    return f"{digits(100 * share, significant)} %"
