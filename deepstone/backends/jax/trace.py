"""Steps under JAX's profiler: the time of each layer in them, and their kernels.

host     step step step …                       hands over, on a GPU is not waited for
device   ▓▓run 0▓▓ ▓▓▓run 1▓▓▓ ▓▓▓run 2▓▓▓      every instruction is an event
account            ┆─ step 1 ─┆─ step 2 ──┆     from the end of a run to the end of the next: as steps are timed

On a CPU the host itself copies batches. Left alone it would hand over dozens of steps, and copy for all of them, during
the first; so it stays one step ahead, as when steps are timed, and each step has the copy for the next one in it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from deepstone.backends.base import InPlace, Unsupported
from deepstone.backends.jax.training import Steps, WholeSteps
from deepstone.backends.owners import Owner, Scopes
from deepstone.backends.xla.owners import SHARING, InstructionOwners, leaves
from deepstone.backends.xla.profile import Kernel, Traced, kernels_of_xla, profile_files, step_windows
from deepstone.backends.xla.program import program_of
from deepstone.backends.xla.steps import TracedSteps
from deepstone.graph.graph import Graph

_METHOD = "JAX's profiler; instructions of the compiled program by the layers that they came from"
_RULE = f"what runs at the same time shares that time equally; {SHARING}"
_NO_COMMAND_BUFFERS = {"xla_gpu_enable_command_buffer": ""}
_COPYING_BATCH = "DevicePutWithSharding"
_EVENTS_OF_XLA = 2  # the level of host events that holds XLA's instructions, and nothing finer
_UNKNOWN = 0.02  # of the kernels: so many may be of no instruction that the profile names


class TracedProgram:
    """One compiled step that runs under the profiler, and the owners of its instructions."""

    def __init__(self, graph: Graph, steps: WholeSteps, phase: str, *, on_cpu: bool) -> None:
        self._steps = steps
        self._one_ahead = on_cpu
        self._step = steps.function(phase)
        self._program = program_of(steps.program(phase).as_text())
        self.owners = InstructionOwners(self._program, Scopes(layer.name for layer in graph.layers))

    def run(self, count: int, synchronize: Callable[[], None], scratch: str) -> list[Traced]:
        def steps() -> None:
            before = None
            for _ in range(count):
                self._step()
                if self._one_ahead:
                    if before is not None:
                        before.block_until_ready()
                    before = self._steps.last_loss
            synchronize()

        return _profiled(steps, scratch)

    def kernels(self, events: Sequence[Traced]) -> list[Kernel]:
        return leaves(kernels_of_xla(events), self._program)

    def windows(self, kernels: Sequence[Kernel], runs: int) -> list[tuple[float, float]]:
        own = [kernel for kernel in kernels if self.knows(kernel)]
        return step_windows(own, runs)

    def knows(self, kernel: Kernel) -> bool:
        return kernel.instruction in self._program.instructions


class Tracer:
    """Traces steps of one job. `synchronize` waits for the device."""

    def __init__(
        self, graph: Graph, steps: Steps, phase: str, synchronize: Callable[[], None], scratch: str, *, on_cpu: bool
    ) -> None:
        if not isinstance(steps, WholeSteps):
            raise Unsupported(
                "a network this deep runs as a chain of programs that like layers share, so that the profile does not "
                "tell them apart"
            )
        self._graph, self._steps, self._phase = graph, steps, phase
        self._synchronize, self._scratch, self._on_cpu = synchronize, scratch, on_cpu
        self._program = TracedProgram(graph, steps, phase, on_cpu=on_cpu)
        self._rule = _RULE

    def in_place(self, count: int) -> InPlace:
        steps = self._traced(count)
        return steps.in_place(_METHOD, self._rule)

    def trace(self, count: int, path: str) -> dict[str, Any]:
        return self._traced(count).summary(path)

    def _traced(self, count: int) -> TracedSteps:
        """Trace one step more than requested: the start of the first is unknown."""
        events, kernels = self._run(count + 1)
        if not self._on_cpu and self._unnamed(kernels) > _UNKNOWN:
            # A CUDA graph's kernels carry no names. Launched one by one they are the same kernels.
            steps = self._steps.recompiled(_NO_COMMAND_BUFFERS)
            self._program = TracedProgram(self._graph, steps, self._phase, on_cpu=self._on_cpu)
            self._rule = f"{_RULE}; these steps were compiled without CUDA graphs, which hide who a kernel belongs to"
            events, kernels = self._run(count + 1)
        windows = self._program.windows(kernels, count + 1)
        if not windows:
            raise Unsupported(
                f"JAX's profile does not tell its steps apart: {len(kernels)} kernels in {count + 1} of them"
            )
        return TracedSteps(
            events=events,
            kernels=kernels,
            windows=windows,
            owners=self._owners,
            expected=self._program.owners.of_layers(),
            on_cpu=self._on_cpu,
            copying_batch=_COPYING_BATCH,
        )

    def _run(self, count: int) -> tuple[list[Traced], list[Kernel]]:
        events = self._program.run(count, self._synchronize, self._scratch)
        return events, self._program.kernels(events)

    def _unnamed(self, kernels: Sequence[Kernel]) -> float:
        computing = [kernel for kernel in kernels if kernel.kind == "kernel"]
        return sum(not self._program.knows(kernel) for kernel in computing) / max(len(computing), 1)

    def _owners(self, kernel: Kernel) -> dict[Owner, float]:
        if kernel.instruction:
            return self._program.owners.of(kernel.instruction)
        if kernel.kind == "copy":
            return {Owner(part="data"): 1.0}  # from the host: copies inside the program have an instruction
        return {Owner(part="other", name="kernels without a name"): 1.0}


def _profiled(run: Callable[[], None], scratch: str) -> list[Traced]:
    """Run under the profiler. `run` must wait for the device at its end."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = _EVENTS_OF_XLA
    with tempfile.TemporaryDirectory(prefix="profile-", dir=scratch, ignore_cleanup_errors=True) as folder:
        jax.profiler.start_trace(folder, profiler_options=options)
        try:
            run()
        finally:
            jax.profiler.stop_trace()
        return [event for file in profile_files(folder, "JAX") for event in _read(file)]


def _read(file: Path) -> list[Traced]:
    return [
        Traced(
            plane=plane.name,
            line=line.name,
            name=event.name,
            start_s=event.start_ns / 1e9,
            end_s=(event.start_ns + event.duration_ns) / 1e9,
            stats=dict(event.stats),
        )
        for plane in jax.profiler.ProfileData.from_file(str(file)).planes
        for line in plane.lines
        for event in line.events
    ]
