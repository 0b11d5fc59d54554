"""Events as torch's profiler gives them, written by hand: recordings of a GPU for machines without one."""

from __future__ import annotations

from deepstone.backends.torch.device import LaunchedKernel
from deepstone.backends.torch.profile import Event, Interval, Recording, StepWindow


def operator(name: str, start_s: float, end_s: float, sequence: int = -1) -> Event:
    return Event(name=name, kind="operator", start_s=start_s, end_s=end_s, sequence=sequence, self_s=end_s - start_s)


def call(correlation: int, start_s: float, end_s: float, name: str = "cudaLaunchKernel") -> Event:
    return Event(name=name, kind="call", start_s=start_s, end_s=end_s, correlation=correlation)


def kernel(correlation: int, start_s: float, end_s: float, name: str = "gemm") -> Event:
    return Event(name=name, kind="kernel", start_s=start_s, end_s=end_s, correlation=correlation)


def launched(start_s: float, end_s: float, launch_end_s: float | None) -> LaunchedKernel:
    launch = None if launch_end_s is None else call(1, launch_end_s - 0.5, launch_end_s)
    return LaunchedKernel(event=kernel(1, start_s, end_s), launch=launch, step=1, phase="forward")


def window(start_s: float, **phases_s: float) -> StepWindow:
    """A step with phases of given lengths, one after the other."""
    phases: list[Interval[str]] = []
    now_s = start_s
    for name, length_s in phases_s.items():
        phases.append(Interval(start_s=now_s, end_s=now_s + length_s, label=name))
        now_s += length_s
    return StepWindow(start_s=start_s, end_s=now_s, phases=tuple(phases))


def recording(events: list[Event], lead: StepWindow, *steps: StepWindow) -> Recording:
    return Recording(events=sorted(events, key=lambda event: event.start_s), lead=lead, steps=list(steps))
