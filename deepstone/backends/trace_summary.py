"""What `trace` tells about steps that ran under a profiler: kernels, calls, how busy the device was and why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from deepstone.backends.kernels import Kernel, calls_of_cuda
from deepstone.backends.traced import Traced
from deepstone.measure.chrome_trace import Event, write_chrome_trace
from deepstone.measure.kernel_table import busy_s, idle_s, totals

_NO_CALLS = {"absent": "the step ran on the CPU, which is not called through a runtime"}
_NO_IDLE = {"absent": "the step ran on the CPU, where host and device are one"}


def summary(
    events: Sequence[Traced],
    kernels: Sequence[Kernel],
    layers_of: Callable[[Kernel], list[str]],
    *,
    start_s: float,
    end_s: float,
    on_cpu: bool,
    path: str,
) -> dict[str, Any]:
    """Of the kernels that began between `start_s` and `end_s`; a Chrome trace of them goes to `path`, if given."""
    inside = [kernel for kernel in kernels if start_s <= kernel.start_s < end_s]
    ran = [_kernel_event(kernel, layers_of(kernel)) for kernel in inside]
    calls = [] if on_cpu else [event for event in calls_of_cuda(events) if start_s <= event.start_s < end_s]
    called = [_call_event(event) for event in calls]
    if path:
        write_chrome_trace(path, [*ran, *called])
    found: dict[str, Any] = {
        "kernels": totals(_whole(inside, ran)),
        "calls": _NO_CALLS if on_cpu else totals(called) or {"absent": "the profile holds no calls of CUDA"},
        "busy_s": busy_s(ran, start_s=start_s, end_s=end_s),
        "span_s": end_s - start_s,
        "idle": _NO_IDLE,
    }
    if not on_cpu:
        ended_s = {event.stats.get("correlation_id"): event.end_s for event in calls_of_cuda(events)}
        launched_s = {
            number: ended_s[kernel.correlation] for number, kernel in enumerate(inside) if kernel.correlation in ended_s
        }
        found["idle"] = idle_s(ran, launched_s, start_s=start_s, end_s=end_s)
    return found


def _call_event(event: Traced) -> Event:
    return Event(
        name=event.name,
        category="call",
        thread=event.line,
        start_s=event.start_s,
        duration_s=event.end_s - event.start_s,
    )


def _kernel_event(kernel: Kernel, layers: list[str]) -> Event:
    return Event(
        name=kernel.name,
        category=kernel.kind,
        thread=kernel.thread,
        start_s=kernel.start_s,
        duration_s=kernel.end_s - kernel.start_s,
        args={"instruction": kernel.instruction, "layers": layers},
    )


def _whole(kernels: Sequence[Kernel], events: Sequence[Event]) -> list[Event]:
    """One event for each piece of work, as long as any thread was at it."""
    threads: dict[int, list[Event]] = {}
    for kernel, event in zip(kernels, events, strict=True):
        threads.setdefault(kernel.number, []).append(event)
    return [_together(parts) if len(parts) > 1 else parts[0] for parts in threads.values()]


def _together(parts: list[Event]) -> Event:
    start_s, end_s = min(part.start_s for part in parts), max(part.end_s for part in parts)
    return replace(parts[0], start_s=start_s, duration_s=busy_s(parts, start_s=start_s, end_s=end_s))
