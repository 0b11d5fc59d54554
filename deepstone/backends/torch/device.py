"""The GPU in traced steps: kernels with the calls that launched them, busy and idle time, runtime calls.

host    ──[launch A]──[launch B]─────────────────[launch C]────
device        [── A ──]  [──── B ────]                     [── C ──]
                     ▲───▲           ▲────── host ───────▲─▲
            between kernels          until C was launched, then between kernels
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from deepstone.backends.torch.profile import Event, Interval, Recording, innermost

# Groups of runtime calls; the first that fits. Setting memory, recording events and asking for attributes are others.
_KINDS = (
    (re.compile("Launch"), "launch"),
    (re.compile("Free"), "free"),
    (re.compile("Alloc"), "malloc"),
    (re.compile("Malloc"), "malloc"),
    (re.compile("Synchronize"), "synchronize"),
    (re.compile("Memcpy"), "copy"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchedKernel:
    """A kernel, copy or memset of one step. Step 0 is the leading one."""

    event: Event
    launch: Event | None  # None: not recorded
    step: int
    phase: str


def launched_kernels(recording: Recording) -> list[LaunchedKernel]:
    """Return kernels in the order of their start. A kernel without a recorded launch belongs to the one before it."""
    calls = {event.correlation: event for event in recording.events if event.kind == "call"}
    kernels = [event for event in recording.events if event.is_of_device]
    launches = [calls.get(kernel.correlation) for kernel in kernels]
    moments_s = [-1.0 if launch is None else launch.start_s for launch in launches]
    windows = [recording.lead, *recording.steps]
    places = innermost(
        [
            Interval(start_s=phase.start_s, end_s=phase.end_s, label=(number, phase.label))
            for number, window in enumerate(windows)
            for phase in window.phases
        ],
        moments_s,
    )
    found: list[LaunchedKernel] = []
    for kernel, launch, place in zip(kernels, launches, places, strict=True):
        if launch is None and found:
            place = (found[-1].step, found[-1].phase)
        if place is not None:
            found.append(LaunchedKernel(event=kernel, launch=launch, step=place[0], phase=place[1]))
    return found


def last_end_s(kernels: Sequence[LaunchedKernel], step: int) -> float:
    """Return the time when the device had finished a step."""
    return max(kernel.event.end_s for kernel in kernels if kernel.step == step)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceTime:
    """Seconds from the first kernel's start to the last one's end. Busy and idle seconds add up to the span."""

    span_s: float
    busy_s: float
    waiting_for_host_s: float  # the next kernel had not been launched yet
    between_kernels_s: float  # it had
    unknown_s: float  # its launch was not recorded


def device_time(kernels: Iterable[LaunchedKernel]) -> DeviceTime:
    """Compute busy and idle time. A kernel counts as launched when the call that launches it has returned."""
    ordered = sorted(kernels, key=lambda kernel: kernel.event.start_s)
    if not ordered:
        return DeviceTime(span_s=0.0, busy_s=0.0, waiting_for_host_s=0.0, between_kernels_s=0.0, unknown_s=0.0)
    busy_s = waiting_s = between_s = unknown_s = 0.0
    first_s = idle_since_s = ordered[0].event.start_s
    for kernel in ordered:
        start_s, end_s = kernel.event.start_s, kernel.event.end_s
        if start_s > idle_since_s:
            if kernel.launch is None:
                unknown_s += start_s - idle_since_s
            else:
                launched_s = min(max(kernel.launch.end_s, idle_since_s), start_s)
                waiting_s += launched_s - idle_since_s
                between_s += start_s - launched_s
        busy_s += max(0.0, end_s - max(start_s, idle_since_s))
        idle_since_s = max(idle_since_s, end_s)
    return DeviceTime(
        span_s=idle_since_s - first_s,
        busy_s=busy_s,
        waiting_for_host_s=waiting_s,
        between_kernels_s=between_s,
        unknown_s=unknown_s,
    )


def kind_of_call(name: str) -> str:
    """Return the kind of a call: launch, malloc, free, synchronize, copy or other."""
    return next((kind for pattern, kind in _KINDS if pattern.search(name)), "other")


def summarize_calls(calls: Iterable[Event]) -> list[dict[str, Any]]:
    """Return count and time of each call, the longest first."""
    found: dict[str, list[float]] = {}
    for call in calls:
        found.setdefault(call.name, []).append(call.end_s - call.start_s)
    rows = [
        {"name": name, "kind": kind_of_call(name), "count": len(times), "total_s": sum(times)}
        for name, times in found.items()
    ]
    return sorted(rows, key=lambda row: -float(row["total_s"]))
