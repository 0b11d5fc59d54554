"""How long a device was busy, and what it waited for in between.

host    ──[launch A]──[launch B]─────────────────[launch C]────
device        [── A ──]  [──── B ────]                     [── C ──]
                     ▲───▲           ▲────── host ───────▲─▲
            between kernels          until C was launched, then between kernels
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from deepstone.backends.torch.launched import Launched


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceTime:
    """Seconds from the first kernel's start to the last one's end. Busy and idle seconds add up to the span."""

    span_s: float
    busy_s: float
    waiting_for_host_s: float  # the next kernel had not been launched yet
    between_kernels_s: float  # it had
    unknown_s: float  # its launch was not seen


def device_time(kernels: Iterable[Launched]) -> DeviceTime:
    """A kernel counts as launched once the call that launches it has returned."""
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
