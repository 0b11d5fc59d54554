"""Single values out of parts of a record that have no fixed form, such as the description of a machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from deepstone.report.wording import harmless


def inner(data: object, *path: str) -> Any:
    """What lies at the end of the way, or None where the way ends early."""
    for key in path:
        if not isinstance(data, dict):
            return None
        data = cast(Mapping[str, object], data).get(key)
    return data


def text_at(data: object, *path: str) -> str:
    """Text or a number as text; empty where there is neither."""
    value = inner(data, *path)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return ""
    return harmless(str(value))


def number_at(data: object, *path: str) -> float | None:
    value = inner(data, *path)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
