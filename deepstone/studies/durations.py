"""A time as people write it: "20 min", "90 s", "1.5 h", "5m". A number alone is seconds."""

from __future__ import annotations

import math
import re
from typing import Final

from deepstone.errors import UsageError, shown

_UNITS_S: Final = {
    "s": 1,
    "sec": 1,
    "second": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
    "d": 86400,
    "day": 86400,
}
_FORM: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([a-z]+?)s?")
_IN_SECONDS: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(s?)")
_LONGEST_S: Final = 365 * 86400


def parse_duration(text: str) -> float:
    """Return seconds. Raises UsageError if the text is not a time above 0."""
    plain = text.strip().lower()
    match = _FORM.fullmatch(plain) or _IN_SECONDS.fullmatch(plain)
    unit_s = _UNITS_S.get(match[2] or "s") if match else None
    if match is None or unit_s is None or not 0 < float(match[1]) * unit_s <= _LONGEST_S:
        raise UsageError(f"{shown(text)}: is no time; write it as in 90s, 5m, 20 min or 1.5 h")
    return float(match[1]) * unit_s


def duration(value_s: float) -> str:
    """Format an approximate time: 42 s, 5 min, 2 h 10 min."""
    if value_s < 120:
        return f"{max(1, math.ceil(value_s))} s"
    minutes = round(value_s / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"
