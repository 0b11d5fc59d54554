"""What the profiler saw of some steps, summed up: kernels and the layers they worked for, runtime calls, idle time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepstone.backends.torch.device_time import device_time
from deepstone.backends.torch.events import Event
from deepstone.backends.torch.launched import Launched
from deepstone.backends.torch.nesting import Interval, innermost
from deepstone.backends.torch.ownership import Layers
from deepstone.backends.torch.profile import Recording
from deepstone.backends.torch.runtime_calls import summarize_calls

NO_CALLS = "on the CPU there is no runtime between the framework and the device"
NO_IDLE = "on the CPU an operator runs when it is called; what lies between operators is the framework's own work"


def summarize_host(recording: Recording, ownership: Sequence[Interval[Layers]], order: Sequence[str]) -> dict[str, Any]:
    """Operators on the CPU. Each has the time in which it called no other."""
    working = [event for event in _in_steps(recording) if event.kind == "operator" and event.computes]
    owners = innermost(ownership, [event.start_s for event in working])
    return {
        "kernels": _rows(working, [event.self_s for event in working], owners, order),
        "calls": {"absent": NO_CALLS},
        "busy_s": sum(event.self_s for event in working),  # operators are called one after the other
        "span_s": sum(step.end_s - step.start_s for step in recording.steps),
        "idle": {"absent": NO_IDLE},
    }


def summarize_device(
    recording: Recording, kernels: Sequence[Launched], owners: Sequence[Layers | None], order: Sequence[str]
) -> dict[str, Any]:
    """Kernels on the GPU, each with whom it worked for, and the host's calls of its runtime."""
    seen = [(kernel, owner) for kernel, owner in zip(kernels, owners, strict=True) if kernel.step > 0]
    events = [kernel.event for kernel, _ in seen]
    times = device_time(kernel for kernel, _ in seen)
    idle = {"waiting for the host": times.waiting_for_host_s, "between kernels": times.between_kernels_s}
    if times.unknown_s:
        idle["before kernels whose launch was not seen"] = times.unknown_s
    return {
        "kernels": _rows(
            events, [event.end_s - event.start_s for event in events], [owner for _, owner in seen], order
        ),
        "calls": summarize_calls(event for event in _in_steps(recording) if event.kind == "call"),
        "busy_s": times.busy_s,
        "span_s": times.span_s,
        "idle": idle,
    }


def _in_steps(recording: Recording) -> list[Event]:
    start_s, end_s = recording.steps[0].start_s, recording.steps[-1].end_s
    return [event for event in recording.events if start_s <= event.start_s < end_s]


def _rows(
    events: Sequence[Event], times_s: Sequence[float], owners: Sequence[Layers | None], order: Sequence[str]
) -> list[dict[str, Any]]:
    """One row for each kernel, the longest first; its layers in the order of the graph."""
    place = {layer: number for number, layer in enumerate(order)}
    counts: dict[tuple[str, str], int] = {}
    totals_s: dict[tuple[str, str], float] = {}
    layers: dict[tuple[str, str], set[str]] = {}
    for event, time_s, owner in zip(events, times_s, owners, strict=True):
        key = (event.name, "kernel" if event.kind == "operator" else event.kind)
        counts[key] = counts.get(key, 0) + 1
        totals_s[key] = totals_s.get(key, 0.0) + time_s
        layers.setdefault(key, set()).update(owner or ())
    return [
        {
            "name": key[0],
            "kind": key[1],
            "count": counts[key],
            "total_s": totals_s[key],
            "layers": sorted(layers[key], key=lambda layer: place[layer]),
        }
        for key in sorted(counts, key=lambda key: -totals_s[key])
    ]
