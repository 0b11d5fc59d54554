"""Totals of traced events: one line per kernel or call, the busy time of the device, and the reasons for idle time.

    host    launch A  launch B              launch C ┆
    device      ███ A ███┆██ B ██┆                   ┆ ███ C ███
                         between  waiting for the host between kernels

`chrome_trace` gives them as a file that Chrome's tracing page and Perfetto open: the Trace Event Format.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepstone.trace.timeline import Span, account


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """An event that started at `start_s` and took `duration_s` on one thread, or on a stream of a device. `process` is
    needed only where there are several."""

    name: str
    category: str
    thread: str
    start_s: float
    duration_s: float
    process: str = ""
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def end_s(self) -> float:
        return self.start_s + self.duration_s


def totals(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Sum events by name and category, the longest first. `layers` in an event's args are the layers that it serves."""
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
    """Return how long at least one of them ran."""
    spans = [Span(start_s=event.start_s, end_s=event.end_s, owners={None: 1.0}) for event in events]
    return end_s - start_s - account(spans, start_s=start_s, end_s=end_s).idle_s


def idle_s(kernels: Sequence[Event], launched_s: Mapping[int, float], *, start_s: float, end_s: float) -> Any:
    """Return the device's idle time by reason. `launched_s`: the end of each kernel's launch, by its number.

    The device waits for the host until its next kernel is launched; the rest of a gap is the device's own.
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
    host_s += end_s - free_s  # after the last kernel the device waits for the host
    return {"waiting for the host": host_s, "between kernels": between_s}


def write_chrome_trace(path: str, events: Iterable[Event]) -> None:
    Path(path).write_text(chrome_trace(events), encoding="utf-8")


def chrome_trace(events: Iterable[Event]) -> str:
    """Return the content of the file. Times are relative to the first event, since large clock values would lose
    digits. Processes have a track each, in the order in which they are first named."""
    named = list(events)
    processes = {name: number for number, name in enumerate(dict.fromkeys(event.process for event in named), start=1)}
    tracks = sorted({(processes[event.process], event.thread) for event in named})
    threads = {track: number for number, track in enumerate(tracks, start=1)}
    written: list[dict[str, Any]] = []
    for name, pid in processes.items():
        if name:
            written.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
            written.append({"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}})
    written += [
        {"ph": "M", "name": "thread_name", "pid": pid, "tid": number, "args": {"name": name}}
        for (pid, name), number in threads.items()
    ]
    ordered = sorted(named, key=lambda event: (event.start_s, -event.duration_s))
    first_s = ordered[0].start_s if ordered else 0.0
    written += [
        {
            "ph": "X",
            "name": event.name,
            "cat": event.category,
            "pid": processes[event.process],
            "tid": threads[processes[event.process], event.thread],
            "ts": (event.start_s - first_s) * 1e6,
            "dur": event.duration_s * 1e6,
            "args": dict(event.args),
        }
        for event in ordered
    ]
    return json.dumps({"traceEvents": written, "displayTimeUnit": "ms"})
