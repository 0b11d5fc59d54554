"""The job under torch's profiler: its kernels and calls, and for compiled networks what each layer took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from torch import nn

from deepstone.backends.base import InPlace
from deepstone.backends.torch.compiled import WatchedNetwork, compile_watched, compiling_anew
from deepstone.backends.torch.compiled_steps import (
    METHOD,
    RULE,
    compiled_ownership,
    device_accounts,
    host_accounts,
    owners_by_order,
)
from deepstone.backends.torch.launched import Launched, launched_kernels
from deepstone.backends.torch.nesting import Interval, innermost
from deepstone.backends.torch.ownership import Layers, eager_ownership
from deepstone.backends.torch.profile import Recording, record_steps
from deepstone.backends.torch.ranges import layer_ranges
from deepstone.backends.torch.settings import Settings
from deepstone.backends.torch.trace import summarize_device, summarize_host
from deepstone.backends.torch.training import Steps
from deepstone.graph.graph import Graph

_STEPS_TO_SETTLE = 3  # compiling, recording a CUDA graph, replaying it


class Tracer:
    """Traced steps are never the timed ones: of a compiled network they run a second compilation of it."""

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
        """What Backend.trace promises."""
        recording = self._record(count, path)
        ownership = self._ownership(recording)
        if not self._on_gpu:
            return summarize_host(recording, ownership, self._order)
        kernels = launched_kernels(recording)
        return summarize_device(recording, kernels, self._owners(kernels, ownership), self._order)

    def in_place(self, count: int) -> InPlace:
        """What Backend.in_place promises, of a compiled network."""
        recording = self._record(count, "")
        assert self._watched is not None, "eager networks are timed by stamps"
        calls, ownership = self._watched.calls, self._ownership(recording)
        if not self._on_gpu:
            return InPlace(METHOD, RULE, host_accounts(recording, ownership, calls))
        kernels = launched_kernels(recording)
        return InPlace(METHOD, RULE, device_accounts(recording, kernels, self._owners(kernels, ownership), calls))

    def _record(self, count: int, path: str) -> Recording:
        """Steps under the profiler; every one before it, such as those that compile, has been run."""
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

    def _owners(self, kernels: Sequence[Launched], ownership: Sequence[Interval[Layers]]) -> list[Layers | None]:
        moments_s = [-1.0 if kernel.launch is None else kernel.launch.start_s for kernel in kernels]
        owners = innermost(ownership, moments_s)
        if self._watched is None:
            return owners
        by_order = owners_by_order(kernels, self._watched.calls)
        return [by_host or ordered for by_host, ordered in zip(owners, by_order, strict=True)]
