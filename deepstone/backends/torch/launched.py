"""Kernels of a GPU with the host's call that launched each, and so the step and the phase that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepstone.backends.torch.events import Event
from deepstone.backends.torch.nesting import Interval, innermost
from deepstone.backends.torch.profile import Recording


@dataclass(frozen=True, kw_only=True, slots=True)
class Launched:
    """A kernel, copy or setting of memory of one step. Step 0 is the one that leads."""

    event: Event
    launch: Event | None  # None: it was not seen
    step: int
    phase: str


def launched_kernels(recording: Recording) -> list[Launched]:
    """In the order in which they started. One whose launch was not seen goes with the one before it."""
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
    found: list[Launched] = []
    for kernel, launch, place in zip(kernels, launches, places, strict=True):
        if launch is None and found:
            place = (found[-1].step, found[-1].phase)
        if place is not None:
            found.append(Launched(event=kernel, launch=launch, step=place[0], phase=place[1]))
    return found


def last_end_s(kernels: Sequence[Launched], step: int) -> float:
    """When the device had done all of a step."""
    return max(kernel.event.end_s for kernel in kernels if kernel.step == step)
