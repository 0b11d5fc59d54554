"""Steps under torch's own profiler. One step leads, in which the profiler gets going; it is not looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

from deepstone.backends.base import Unsupported
from deepstone.backends.torch.events import Event, from_profiler
from deepstone.backends.torch.nesting import Interval
from deepstone.backends.torch.ranges import begin_range, end_range

_STEP = "deepstone step"
_PHASE = "deepstone phase: "


@dataclass(frozen=True, kw_only=True, slots=True)
class StepWindow:
    """When the host ran one step, and its phases."""

    start_s: float
    end_s: float
    phases: tuple[Interval[str], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """All that was seen, in the order in which it started."""

    events: list[Event]
    lead: StepWindow
    steps: list[StepWindow]


def record_steps(
    step: Callable[[Callable[[int], None]], None],
    phases: Sequence[str],
    *,
    count: int,
    on_gpu: bool,
    synchronize: Callable[[], None],
    path: str = "",
) -> Recording:
    """Run `count` steps; `step` calls what it is given at the end of each phase. Writes a Chrome trace to `path`."""
    if path:
        _check_writable(path)
    synchronize()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiler:
        for _ in range(count + 1):
            _ranged(step, phases)
        synchronize()
    if path:
        profiler.export_chrome_trace(path)
    events = from_profiler(profiler.events() or [])
    windows = _windows(events)
    return Recording(events=events, lead=windows[0], steps=windows[1:])


def _ranged(step: Callable[[Callable[[int], None]], None], phases: Sequence[str]) -> None:
    whole = begin_range(_STEP)
    current = [begin_range(_PHASE + phases[0])]

    def mark(phase: int) -> None:
        end_range(current.pop())
        if phase + 1 < len(phases):
            current.append(begin_range(_PHASE + phases[phase + 1]))

    step(mark)
    end_range(whole)


def _windows(events: list[Event]) -> list[StepWindow]:
    ranges = [event for event in events if event.kind == "range"]
    windows: list[StepWindow] = []
    for step in (event for event in ranges if event.name == _STEP):
        phases = [
            Interval(start_s=event.start_s, end_s=event.end_s, label=event.name.removeprefix(_PHASE))
            for event in ranges
            if event.name.startswith(_PHASE) and step.start_s <= event.start_s < step.end_s
        ]
        windows.append(StepWindow(start_s=step.start_s, end_s=step.end_s, phases=tuple(phases)))
    return windows


def _check_writable(path: str) -> None:
    """The profiler itself would only complain on standard error, after all the work."""
    try:
        with Path(path).open("ab"):
            pass
    except OSError as error:
        raise Unsupported(f"cannot write the trace to {path}: {error.strerror}") from error
