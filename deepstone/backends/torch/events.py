"""What torch's profiler saw, as plain events: operators, ranges and calls of the host, kernels of the device."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from torch.autograd import DeviceType  # pyright: ignore[reportPrivateImportUsage]

Kind: TypeAlias = Literal["operator", "range", "call", "kernel", "copy", "set"]

_RUNTIME_CALL = re.compile(r"^(cuda|cu|hip)[A-Z]")  # cudaLaunchKernel, cuLaunchKernel, hipLaunchKernel
_COMPILED_KERNEL = re.compile(r"^(graph_\d+_)?(cpp|triton)_")
_WAITING = re.compile(r"^(Context|Stream|Event) (Sync|Wait)")  # CUPTI shows waiting on the device's side too


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Something that ran. A call of the runtime and the kernel that it launched have the same `correlation`."""

    name: str
    kind: Kind
    start_s: float
    end_s: float
    correlation: int = 0
    sequence: int = -1  # of operators: an operator and the autograd node that it made have the same
    self_s: float = 0.0  # of operators: without the operators that it called

    @property
    def computes(self) -> bool:
        """Whether this is work itself, and not the autograd engine's or the compiler's frame around work."""
        if self.kind != "operator":
            return self.is_of_device
        space, colons, _ = self.name.partition("::")
        return bool(_COMPILED_KERNEL.match(self.name) or (colons and space not in ("autograd", "torch", "profiler")))

    @property
    def is_of_device(self) -> bool:
        return self.kind in ("kernel", "copy", "set")


def from_profiler(found: Iterable[Any]) -> list[Event]:
    """The events that `torch.profiler.profile.events()` gives, in the order of their start."""
    events = [event for each in found if (event := _event(each)) is not None]
    return sorted(events, key=lambda event: (event.start_s, -event.end_s))


def _event(found: Any) -> Event | None:
    kind = _kind(found)
    if kind is None:
        return None
    return Event(
        name=found.name,
        kind=kind,
        start_s=found.time_range.start / 1e6,
        end_s=found.time_range.end / 1e6,
        correlation=found.id if kind not in ("operator", "range") else 0,  # the others count in numbers of their own
        sequence=found.sequence_nr,
        self_s=found.self_cpu_time_total / 1e6 if kind == "operator" else 0.0,
    )


def _kind(found: Any) -> Kind | None:
    if found.device_type == DeviceType.CPU:
        if found.is_user_annotation:
            return "range"
        return "call" if _RUNTIME_CALL.match(found.name) else "operator"
    if found.is_user_annotation or _WAITING.match(found.name):  # ranges of the host are drawn on the device too
        return None
    if found.name.startswith("Memcpy"):
        return "copy"
    return "set" if found.name.startswith("Memset") else "kernel"
