"""Traced events as a file that Chrome's tracing page and Perfetto open: the Trace Event Format, in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Something that ran from `start_s` for `duration_s` on one thread, or stream of a device."""

    name: str
    category: str
    thread: str
    start_s: float
    duration_s: float
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def end_s(self) -> float:
        return self.start_s + self.duration_s


def write_chrome_trace(path: str, events: Iterable[Event]) -> None:
    """Times count from the first event, so that no digit is lost to the age of the clock."""
    ordered = sorted(events, key=lambda event: (event.start_s, -event.duration_s))
    first_s = ordered[0].start_s if ordered else 0.0
    threads = {name: number for number, name in enumerate(sorted({event.thread for event in ordered}), start=1)}
    written: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": number, "args": {"name": name}}
        for name, number in threads.items()
    ]
    written += [
        {
            "ph": "X",
            "name": event.name,
            "cat": event.category,
            "pid": 1,
            "tid": threads[event.thread],
            "ts": (event.start_s - first_s) * 1e6,
            "dur": event.duration_s * 1e6,
            "args": dict(event.args),
        }
        for event in ordered
    ]
    Path(path).write_text(json.dumps({"traceEvents": written, "displayTimeUnit": "ms"}), encoding="utf-8")
