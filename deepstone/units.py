"""Quantities as people read them. Inside the program everything is SI; only these functions format."""

from __future__ import annotations

_TIME_STEPS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SI_STEPS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY_STEPS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def digits(value: float, significant: int = 3) -> str:
    """A number with so many significant digits, never in exponent form: 1234.5 -> 1,234 and 0.01234 -> 0.0123."""
    if value == 0:
        return "0"
    magnitude = abs(value)
    places = 0
    while magnitude < 10 ** (significant - 1) and places < 12:
        magnitude *= 10
        places += 1
    return f"{value:,.{places}f}"


def seconds(value_s: float) -> str:
    for scale, unit in _TIME_STEPS:
        if abs(value_s) >= scale:
            return f"{digits(value_s / scale)} {unit}"
    return f"{digits(value_s / 1e-9)} ns" if value_s else "0 s"


def count(value: float, unit: str = "") -> str:
    """1234567 -> 1.23 M."""
    for scale, prefix in _SI_STEPS:
        if abs(value) >= scale:
            return f"{digits(value / scale)} {prefix}{unit}"
    return f"{digits(value)} {unit}".rstrip()


def bytes_(value_bytes: float) -> str:
    for scale, unit in _BINARY_STEPS:
        if abs(value_bytes) >= scale:
            return f"{digits(value_bytes / scale)} {unit}"
    return f"{value_bytes:.0f} B"


def percent(share: float) -> str:
    return f"{digits(100 * share, 2)} %"
