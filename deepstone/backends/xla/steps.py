"""Traced steps with the layers of every kernel: the time of each layer in each step, and a table of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from deepstone.backends.base import Backend, InPlace, Job
from deepstone.backends.owners import Owner, step_account
from deepstone.backends.xla.profile import Kernel, Traced, calls_of_cuda
from deepstone.graph.graph import Graph
from deepstone.trace.events import Event, busy_s, idle_s, totals, write_chrome_trace
from deepstone.trace.timeline import Span

_NO_CALLS = {"absent": "the step ran on the CPU, which is not called through a runtime"}
_NO_IDLE = {"absent": "the step ran on the CPU, where host and device are one"}


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedSteps:
    """The kernels of some steps, and their owners."""

    events: Sequence[Traced]
    kernels: Sequence[Kernel]
    windows: Sequence[tuple[float, float]]  # from the end of each step to the end of the next
    owners: Callable[[Kernel], dict[Owner, float]]
    expected: set[Owner]  # layers that are in the program, even without time
    on_cpu: bool
    copying_batch: str  # the name of events in which the host copies a batch; a GPU's copies are among its kernels

    def in_place(self, method: str, rule: str) -> InPlace:
        """Return the result of Backend.in_place."""
        spans = [Span(start_s=k.start_s, end_s=k.end_s, owners=self.owners(k)) for k in self.kernels]
        if self.on_cpu:
            spans += [
                Span(start_s=event.start_s, end_s=event.end_s, owners={Owner(part="data"): 1.0})
                for event in self.events
                if event.name == self.copying_batch
            ]
        accounts = [
            step_account(spans, start_s=start_s, end_s=end_s, expected=self.expected) for start_s, end_s in self.windows
        ]
        return InPlace(method, rule, accounts)

    def summary(self, path: str) -> dict[str, Any]:
        """Return the result of Backend.trace; write a Chrome trace to `path`, if given."""
        start_s, end_s = self.windows[0][0], self.windows[-1][1]
        inside = [kernel for kernel in self.kernels if start_s <= kernel.start_s < end_s]
        ran = [_kernel_event(kernel, self._layers(kernel)) for kernel in inside]
        calls = [] if self.on_cpu else calls_of_cuda(self.events)
        called = [_call_event(event) for event in calls if start_s <= event.start_s < end_s]
        if path:
            write_chrome_trace(path, [*ran, *called])
        found: dict[str, Any] = {
            "kernels": totals(_whole(inside, ran)),
            "calls": _NO_CALLS if self.on_cpu else totals(called) or {"absent": "the profile holds no calls of CUDA"},
            "busy_s": busy_s(ran, start_s=start_s, end_s=end_s),
            "span_s": end_s - start_s,
            "idle": _NO_IDLE,
        }
        if not self.on_cpu:
            ended_s = {event.stats.get("correlation_id"): event.end_s for event in calls}
            launched_s = {
                number: ended_s[kernel.correlation]
                for number, kernel in enumerate(inside)
                if kernel.correlation in ended_s
            }
            found["idle"] = idle_s(ran, launched_s, start_s=start_s, end_s=end_s)
        return found

    def _layers(self, kernel: Kernel) -> list[str]:
        return sorted({owner.name for owner in self.owners(kernel) if owner.is_layer})


class Tracer(Protocol):
    """Runs steps of one job under the framework's profiler."""

    def in_place(self, count: int) -> InPlace: ...

    def trace(self, count: int, path: str) -> dict[str, Any]: ...


class TracedBackend(Backend):
    """A backend that gets layer times from a profile. Its `build` calls `_begin` first."""

    _job: Job
    _graph: Graph
    _tracer: Tracer | None = None

    def _begin(self, job: Job) -> Graph:
        """Take a new job, and drop the tracer of the previous one."""
        self._job, self._tracer = job, None
        self._graph = Graph.from_worker_json(job.graph)
        return self._graph

    def _make_tracer(self) -> Tracer:
        """Make the tracer on first use."""
        raise NotImplementedError

    def in_place(self, steps: int) -> InPlace:
        return self._known_tracer().in_place(steps)

    def trace(self, steps: int, path: str) -> dict[str, Any]:
        return self._known_tracer().trace(steps, path)

    def _known_tracer(self) -> Tracer:
        if self._tracer is None:
            self._tracer = self._make_tracer()
        return self._tracer


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
    """Return one event for each piece of work, over the time in which any thread worked on it."""
    threads: dict[int, list[Event]] = {}
    for kernel, event in zip(kernels, events, strict=True):
        threads.setdefault(kernel.number, []).append(event)
    return [_together(parts) if len(parts) > 1 else parts[0] for parts in threads.values()]


def _together(parts: list[Event]) -> Event:
    start_s, end_s = min(part.start_s for part in parts), max(part.end_s for part in parts)
    return replace(parts[0], start_s=start_s, duration_s=busy_s(parts, start_s=start_s, end_s=end_s))
