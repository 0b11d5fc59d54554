"""The job under torch's profiler: its kernels and calls, and for compiled networks the time of each layer.

In eager steps, ranges around layers assign the host's time in forward. An autograd node and the forward operator that
made it have the same sequence number, so the node's layer is known in backward, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from torch import nn

from deepstone.backends.base import InPlace
from deepstone.backends.torch.compiled import Layers, WatchedNetwork, compile_watched, compiling_anew
from deepstone.backends.torch.compiled_steps import (
    METHOD,
    RULE,
    compiled_ownership,
    device_accounts,
    host_accounts,
    owners_by_order,
)
from deepstone.backends.torch.device import LaunchedKernel, device_time, launched_kernels, summarize_calls
from deepstone.backends.torch.profile import (
    LAYER_RANGE,
    Event,
    Interval,
    Recording,
    innermost,
    layer_ranges,
    record_steps,
)
from deepstone.backends.torch.settings import Settings
from deepstone.backends.torch.training import Steps
from deepstone.graph.graph import Graph

_STEPS_TO_SETTLE = 3  # compiling, recording a CUDA graph, replaying it
_AUTOGRAD_NODE = "autograd::engine::evaluate_function: "
_ACCUMULATION = _AUTOGRAD_NODE + "torch::autograd::AccumulateGrad"
_NO_CALLS = "on the CPU there is no runtime between the framework and the device"
_NO_IDLE = "on the CPU an operator runs when it is called; what lies between operators is the framework's own work"


class Tracer:
    """Traces steps, never the timed ones: for a compiled network it runs a second compilation."""

    def __init__(
        self,
        network: nn.Module,
        graph: Graph,
        steps: Steps,
        settings: Settings,
        phases: Sequence[str],
        synchronize: Callable[[], None],
    ) -> None:
        self._network = network
        self._order = [layer.name for layer in graph.layers]
        self._steps = steps
        self._settings = settings
        self._on_gpu = settings.device.type == "cuda"
        self._phases = phases
        self._synchronize = synchronize
        self._watched: WatchedNetwork | None = None

    def trace(self, count: int, path: str) -> dict[str, Any]:
        """Implements Backend.trace."""
        recording = self._record(count, path)
        ownership = self._ownership(recording)
        if not self._on_gpu:
            return summarize_host(recording, ownership, self._order)
        kernels = launched_kernels(recording)
        return summarize_device(recording, kernels, self._owners(kernels, ownership), self._order)

    def in_place(self, count: int) -> InPlace:
        """Implements Backend.in_place for a compiled network."""
        recording = self._record(count, "")
        assert self._watched is not None, "eager networks are timed by stamps"
        calls, ownership = self._watched.calls, self._ownership(recording)
        if not self._on_gpu:
            return InPlace(METHOD, RULE, host_accounts(recording, ownership, calls))
        kernels = launched_kernels(recording)
        return InPlace(METHOD, RULE, device_accounts(recording, kernels, self._owners(kernels, ownership), calls))

    def _record(self, count: int, path: str) -> Recording:
        """Run steps under the profiler; earlier steps, such as those that compile, have been run."""
        eager = self._settings.compile_mode is None
        model = self._network if eager else self._compiled().module
        with layer_ranges(self._network) if eager else nullcontext():
            return record_steps(
                lambda mark: self._steps.step_in_phases(mark, model=model),
                self._phases,
                count=count,
                on_gpu=self._on_gpu,
                synchronize=self._synchronize,
                path=path,
            )

    def _compiled(self) -> WatchedNetwork:
        if self._watched is None:
            assert self._settings.compile_mode is not None
            watched = compile_watched(self._network, self._settings.compile_mode)
            with compiling_anew():
                for _ in range(_STEPS_TO_SETTLE):
                    self._steps.step_in_phases(lambda _: None, model=watched.module)
            self._watched = watched
        return self._watched

    def _ownership(self, recording: Recording) -> list[Interval[Layers]]:
        if self._watched is None:
            return eager_ownership(recording.events)
        return compiled_ownership(recording, self._watched.calls)

    def _owners(self, kernels: Sequence[LaunchedKernel], ownership: Sequence[Interval[Layers]]) -> list[Layers | None]:
        moments_s = [-1.0 if kernel.launch is None else kernel.launch.start_s for kernel in kernels]
        owners = innermost(ownership, moments_s)
        if self._watched is None:
            return owners
        by_order = owners_by_order(kernels, self._watched.calls)
        return [by_host or ordered for by_host, ordered in zip(owners, by_order, strict=True)]


def eager_ownership(events: Sequence[Event]) -> list[Interval[Layers]]:
    """Return intervals of the host's time with their layers; they may be nested."""
    forward = [
        Interval(start_s=event.start_s, end_s=event.end_s, label=event.name.removeprefix(LAYER_RANGE))
        for event in events
        if event.kind == "range" and event.name.startswith(LAYER_RANGE)
    ]
    operators = [event for event in events if event.kind == "operator"]
    # A number is also shown by operators that run before its node is made and make none; the last one made it.
    makers = [event for event in operators if event.sequence >= 0 and not event.name.startswith(_AUTOGRAD_NODE)]
    layers = innermost(forward, [event.start_s for event in makers])
    layer_of_sequence = {
        maker.sequence: layer for maker, layer in zip(makers, layers, strict=True) if layer is not None
    }
    backward = list(_backward(operators, layer_of_sequence))
    return [
        Interval(start_s=interval.start_s, end_s=interval.end_s, label={interval.label: 1})
        for interval in [*forward, *backward]
    ]


def _backward(operators: Sequence[Event], layer_of_sequence: Mapping[int, str]) -> Iterator[Interval[str]]:
    layer: str | None = None
    for node in operators:
        if not node.name.startswith(_AUTOGRAD_NODE):
            continue
        if node.name != _ACCUMULATION:  # has no number, but runs right after the node that gave the gradient
            layer = layer_of_sequence.get(node.sequence)
        if layer is not None:
            yield Interval(start_s=node.start_s, end_s=node.end_s, label=layer)


def summarize_host(recording: Recording, ownership: Sequence[Interval[Layers]], order: Sequence[str]) -> dict[str, Any]:
    """Summarize operators on the CPU by their own time, without the operators that they called."""
    working = [event for event in _in_steps(recording) if event.kind == "operator" and event.computes]
    owners = innermost(ownership, [event.start_s for event in working])
    return {
        "kernels": _rows(working, [event.self_s for event in working], owners, order),
        "calls": {"absent": _NO_CALLS},
        "busy_s": sum(event.self_s for event in working),  # operators are called one after the other
        "span_s": sum(step.end_s - step.start_s for step in recording.steps),
        "idle": {"absent": _NO_IDLE},
    }


def summarize_device(
    recording: Recording, kernels: Sequence[LaunchedKernel], owners: Sequence[Layers | None], order: Sequence[str]
) -> dict[str, Any]:
    """Summarize kernels on the GPU, each with its layers, and the host's runtime calls."""
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


def _named(owners: Iterable[Layers | None]) -> Iterator[str]:
    """Return the names; the parts of a user's own module are in no graph."""
    return (layer for owner in owners for layer in owner or ())


def _rows(
    events: Sequence[Event], times_s: Sequence[float], owners: Sequence[Layers | None], order: Sequence[str]
) -> list[dict[str, Any]]:
    """Return one row for each kernel, the longest first; its layers in the order of the graph, then as they ran."""
    place = {layer: number for number, layer in enumerate(dict.fromkeys([*order, *_named(owners)]))}
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
