"""Steps under TensorFlow's profiler: what each layer took inside them, and which operations ran.

host     ┆step 0┆ ┆─ step 1 ─┆ ┆─ step 2 ─┆     each is waited for, as TensorFlow does on a CPU
threads   ▓▓▓▓▓▓   ▓▓▓ ▓▓▓▓▓▓   ▓▓▓ ▓▓▓▓▓▓      every operation, or instruction of XLA, is an event
account         ┆─── step 1 ──┆─── step 2 ──┆   from the end of a step to the end of the next
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from deepstone.backends.base import InPlace, Unsupported
from deepstone.backends.hlo import Program
from deepstone.backends.hlo_owners import SHARING as SHARING_OF_XLA
from deepstone.backends.hlo_owners import InstructionOwners, leaves
from deepstone.backends.kernels import Kernel, kernels_of_xla
from deepstone.backends.owners import Owner, span_of_data, step_account
from deepstone.backends.scopes import Scopes
from deepstone.backends.tensorflow.hlo_proto import program_of
from deepstone.backends.tensorflow.node_owners import SHARING, NodeOwners
from deepstone.backends.tensorflow.profile import Profile, profiled
from deepstone.backends.tensorflow.settings import Settings
from deepstone.backends.trace_summary import summary
from deepstone.graph.graph import Graph
from deepstone.measure.timeline import Span

_METHOD = "TensorFlow's profiler; operations by the layers whose names they carry"
_RULE = "what runs at the same time on several threads shares that time equally; "
# An operation is called `node:kind`. Those that run others have these kinds; what they run has events of its own.
_OPERATION = re.compile(r"([^:\s]+):([A-Za-z_]\w*)$")
_CALLERS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "If", "While", "StatelessIf", "StatelessWhile"})
_COPYING_BATCH = "EagerLocalExecute: DeepCopy"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """What ran in some steps, and whose it was."""

    profile: Profile
    kernels: list[Kernel]
    owners: Callable[[Kernel], dict[Owner, float]]
    expected: set[Owner]

    def layers(self, kernel: Kernel) -> list[str]:
        return sorted({owner.name for owner in self.owners(kernel) if owner.is_layer})


class Tracer:
    """Traces steps of one job. `step` waits for the device, `recorded` is the program that it runs."""

    def __init__(
        self, graph: Graph, step: Callable[[], None], recorded: Any | None, scratch: str, settings: Settings
    ) -> None:
        if settings.on_gpu:
            raise Unsupported("TensorFlow's profile of a GPU is not read by Deepstone; use device=cpu")
        if recorded is None:
            raise Unsupported(
                "run eagerly, TensorFlow's operations carry no layer's name; use compile=graph or engine=xla"
            )
        self._step = step
        self._scratch = scratch
        self._scopes = Scopes(layer.name for layer in graph.layers)
        self._nodes = NodeOwners(recorded.graph.get_operations(), self._scopes)
        self._xla = settings.xla
        self._program: Program | None = None

    def in_place(self, count: int) -> InPlace:
        seen = self._traced(count)
        spans = [Span(start_s=k.start_s, end_s=k.end_s, owners=seen.owners(k)) for k in seen.kernels]
        spans += [span_of_data(event) for event in seen.profile.events if event.name == _COPYING_BATCH]
        accounts = [
            step_account(spans, start_s=start_s, end_s=end_s, expected=seen.expected)
            for start_s, end_s in seen.profile.windows()
        ]
        return InPlace(_METHOD, _RULE + (SHARING_OF_XLA if self._xla else SHARING), accounts)

    def trace(self, count: int, path: str) -> dict[str, Any]:
        seen = self._traced(count)
        windows = seen.profile.windows()
        return summary(
            seen.profile.events,
            seen.kernels,
            seen.layers,
            start_s=windows[0][0],
            end_s=windows[-1][1],
            on_cpu=True,
            path=path,
        )

    def _traced(self, count: int) -> _Seen:
        """One step more than asked for: of the first, the beginning is not known."""
        profile = profiled(self._step, count + 1, self._scratch)
        return self._instructions(profile) if self._xla else self._operations(profile)

    def _operations(self, profile: Profile) -> _Seen:
        kernels: list[Kernel] = []
        for number, event in enumerate(profile.events):
            found = _OPERATION.match(event.name)
            if found is not None and found[2] not in _CALLERS:
                kernels.append(
                    Kernel(
                        number=number,
                        name=found[2],
                        instruction=found[1],
                        run=None,
                        kind="kernel",
                        thread=event.line,
                        start_s=event.start_s,
                        end_s=event.end_s,
                    )
                )
        return _Seen(
            profile=profile,
            kernels=kernels,
            owners=lambda kernel: {self._nodes.of(kernel.instruction, kernel.name): 1.0},
            expected=self._nodes.of_layers(),
        )

    def _instructions(self, profile: Profile) -> _Seen:
        kernels = kernels_of_xla(profile.events)
        program = self._program_of(profile, kernels)
        owners = InstructionOwners(program, self._scopes)
        return _Seen(
            profile=profile,
            kernels=leaves(kernels, program),
            owners=lambda kernel: owners.of(kernel.instruction),
            expected=owners.of_layers(),
        )

    def _program_of(self, profile: Profile, kernels: Sequence[Kernel]) -> Program:
        """The one, of all that the profile holds, whose instructions ran."""
        seen = {kernel.instruction for kernel in kernels}
        if self._program is None or not seen <= set(self._program.instructions):
            programs = [program_of(proto) for proto in profile.programs]
            if not programs:
                raise Unsupported("TensorFlow's profile does not hold the program that XLA compiled")
            self._program = max(programs, key=lambda program: len(seen & set(program.instructions)))
        return self._program
