"""Calls of the GPU's runtime in the groups of time distributions: launch, malloc, free, synchronize, copy, other."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from deepstone.backends.torch.events import Event

# The first that fits. Setting memory, recording events and asking for attributes are among the others.
_KINDS = (
    (re.compile("Launch"), "launch"),
    (re.compile("Free"), "free"),
    (re.compile("Alloc"), "malloc"),
    (re.compile("Malloc"), "malloc"),
    (re.compile("Synchronize"), "synchronize"),
    (re.compile("Memcpy"), "copy"),
)


def kind_of_call(name: str) -> str:
    return next((kind for pattern, kind in _KINDS if pattern.search(name)), "other")


def summarize_calls(calls: Iterable[Event]) -> list[dict[str, Any]]:
    """Count and time of each call, the longest first."""
    found: dict[str, list[float]] = {}
    for call in calls:
        found.setdefault(call.name, []).append(call.end_s - call.start_s)
    rows = [
        {"name": name, "kind": kind_of_call(name), "count": len(times), "total_s": sum(times)}
        for name, times in found.items()
    ]
    return sorted(rows, key=lambda row: -float(row["total_s"]))
