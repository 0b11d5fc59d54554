"""Traced events summed up: one line per kernel or call, how long the device was busy, and why it was not.

host    launch A  launch B              launch C ┆
device      ███ A ███┆██ B ██┆                   ┆ ███ C ███
                     between  waiting for the host between kernels
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deepstone.measure.chrome_trace import Event
from deepstone.measure.timeline import Span, account


def totals(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Events of one name and category together, the longest first. `layers` in an event's args are those it serves."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for event in events:
        entry = found.setdefault(
            (event.name, event.category), {"name": event.name, "kind": event.category, "count": 0, "total_s": 0.0}
        )
        entry["count"] += 1
        entry["total_s"] += event.duration_s
        for layer in event.args.get("layers", ()):
            layers = entry.setdefault("layers", [])
            if layer not in layers:
                layers.append(layer)
    return sorted(found.values(), key=lambda entry: -entry["total_s"])


def busy_s(events: Iterable[Event], *, start_s: float, end_s: float) -> float:
    """How long at least one of them ran."""
    spans = [Span(start_s=event.start_s, end_s=event.end_s, owners={None: 1.0}) for event in events]
    return end_s - start_s - account(spans, start_s=start_s, end_s=end_s).idle_s


def idle_s(kernels: Sequence[Event], launched_s: Mapping[int, float], *, start_s: float, end_s: float) -> Any:
    """The device's idle time by what it waited for. `launched_s` has the end of each kernel's launch by its number.

    Until its next kernel was launched it waited for the host; what then still passed is the device's own.
    """
    ordered = sorted(range(len(kernels)), key=lambda number: kernels[number].start_s)
    if any(number not in launched_s for number in ordered):
        return {"absent": "the profile does not tell when every kernel was launched"}
    host_s = between_s = 0.0
    free_s = start_s
    for number in ordered:
        begins_s = min(max(kernels[number].start_s, free_s), end_s)
        waited_s = max(min(launched_s[number], begins_s) - free_s, 0.0)
        host_s += waited_s
        between_s += begins_s - free_s - waited_s
        free_s = max(free_s, min(kernels[number].end_s, end_s))
    host_s += end_s - free_s  # after the last kernel nothing was left to do
    return {"waiting for the host": host_s, "between kernels": between_s}
