"""Numbers in the table under a figure: with their interval, or with the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable

from deepstone.absent import Absent
from deepstone.report.figure import Value
from deepstone.units import bytes_, percent, seconds


def share(value: float) -> str:
    """A percentage as short as it can be: what is next to nothing needs no digits."""
    return "< 0.01 %" if 0 < value < 1e-4 else percent(value)


def value_cell(value: Value | Absent | None, shown: Callable[[float], str]) -> str:
    if value is None:
        return ""
    if isinstance(value, Absent):
        return f"absent: {value.reason}"
    interval = (
        f" ({shown(value.low)} – {shown(value.high)})" if value.low is not None and value.high is not None else ""
    )
    return f"{shown(value.middle)}{interval}"


def time_cell(value: Value | Absent | None) -> str:
    return value_cell(value, seconds)


def bytes_cell(value: float | Absent) -> str:
    return f"absent: {value.reason}" if isinstance(value, Absent) else bytes_(value)


def share_cell(value: float | Absent) -> str:
    return "" if isinstance(value, Absent) else share(value)
