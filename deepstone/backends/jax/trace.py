"""Steps under JAX's profiler: what each layer took inside them, and which kernels ran.

host     step step step …                       hands over, on a GPU is not waited for
device   ▓▓run 0▓▓ ▓▓▓run 1▓▓▓ ▓▓▓run 2▓▓▓      every instruction is an event
account            ┆─ step 1 ─┆─ step 2 ──┆     from the end of a run to the end of the next: as steps are timed

On a CPU the host itself copies batches. Left alone it would hand over dozens of steps, and copy for all of them, during
the first; so it stays one step ahead, as when steps are timed, and each step has the copy for the next one in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deepstone.backends.base import InPlace, Unsupported
from deepstone.backends.hlo_owners import SHARING, InstructionOwners, leaves
from deepstone.backends.hlo_text import program_of
from deepstone.backends.jax.profile import profiled
from deepstone.backends.jax.training import Steps, WholeSteps
from deepstone.backends.kernels import Kernel, kernels_of_xla, step_windows
from deepstone.backends.owners import Owner, span_of_data, step_account
from deepstone.backends.scopes import Scopes
from deepstone.backends.trace_summary import summary
from deepstone.backends.traced import Traced
from deepstone.graph.graph import Graph
from deepstone.measure.timeline import Span

_METHOD = "JAX's profiler; instructions of the compiled program by the layers that they came from"
_RULE = f"what runs at the same time shares that time equally; {SHARING}"
_NO_COMMAND_BUFFERS = {"xla_gpu_enable_command_buffer": ""}
_COPYING_BATCH = "DevicePutWithSharding"  # on a CPU the host copies; a GPU's own copies are among its kernels
_UNKNOWN = 0.02  # of the kernels: so many may be of no instruction that the profile names


class TracedProgram:
    """One compiled step that is run under the profiler, and who its instructions belong to."""

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

        return profiled(steps, scratch)

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
        self._graph = graph
        self._steps = steps
        self._phase = phase
        self._synchronize = synchronize
        self._scratch = scratch
        self._on_cpu = on_cpu
        self._program = TracedProgram(graph, steps, phase, on_cpu=on_cpu)
        self._rule = _RULE

    def in_place(self, count: int) -> InPlace:
        events, kernels, windows = self._traced(count)
        spans = [Span(start_s=k.start_s, end_s=k.end_s, owners=self._owners(k)) for k in kernels]
        if self._on_cpu:
            spans += [span_of_data(event) for event in events if event.name == _COPYING_BATCH]
        expected = self._program.owners.of_layers()
        accounts = [step_account(spans, start_s=start, end_s=end, expected=expected) for start, end in windows]
        return InPlace(_METHOD, self._rule, accounts)

    def trace(self, count: int, path: str) -> dict[str, Any]:
        events, kernels, windows = self._traced(count)
        return summary(
            events, kernels, self._layers, start_s=windows[0][0], end_s=windows[-1][1], on_cpu=self._on_cpu, path=path
        )

    def _traced(self, count: int) -> tuple[list[Traced], list[Kernel], list[tuple[float, float]]]:
        """One step more than asked for: of the first, the beginning is not known."""
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
        return events, kernels, windows

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

    def _layers(self, kernel: Kernel) -> list[str]:
        return sorted({owner.name for owner in self._owners(kernel) if owner.is_layer})
