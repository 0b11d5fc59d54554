"""A time as people write it: "20 min", "90 s", "1.5 h", "5m". A number alone is seconds."""

from __future__ import annotations

import math
import re
from typing import Final

from deepstone.errors import UsageError, shown

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_WORDS: Final = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "day": "d"}
_FORM: Final = re.compile(rf"([0-9]{{1,9}}(?:\.[0-9]{{1,9}})?)\s*(?:([{''.join(_UNITS_S)}]?)|({'|'.join(_WORDS)})s?)")
_LONGEST_S: Final = 365 * 86400


def parse_duration(text: str) -> float:
    """Return seconds. Raises UsageError if the text is not a time above 0."""
    plain = text.strip().lower()
    match = _FORM.fullmatch(plain)
    seconds = 0.0 if match is None else float(match[1]) * _UNITS_S[_WORDS[match[3]] if match[3] else match[2] or "s"]
    if not 0 < seconds <= _LONGEST_S:
        raise UsageError(f"{shown(text)}: is no time; write it as in 90s, 5m, 20 min or 1.5 h")
    return seconds


def duration(value_s: float) -> str:
    """Format an approximate time: 42 s, 5 min, 2 h 10 min."""
    if value_s < 120:
        return f"{max(1, math.ceil(value_s))} s"
    minutes = round(value_s / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"
