"""The layer check: every isolated layer gets the reference's input and upstream gradient, and must agree with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.checks.agreement import layer_tolerance, relative_error
from deepstone.checks.cases import Case, Key
from deepstone.graph.graph import Graph
from deepstone.results.sameness import Distance, LayersChecked
from deepstone.runner.conversation import Conversation, JobFailed
from deepstone.runner.measurement import OnProgress


class LayerCheck(Struct, kw_only=True):
    """The result of one framework over all layers."""

    precision: str  # of the run
    on_gpu: bool = False
    checked: int = 0  # layers
    worst: Distance | None = None  # of all arrays of all layers, relative to its tolerance
    first_disagreement: Distance | None = None  # the disagreeing layer nearest to the network's input
    failure: str = ""  # why it did not finish
    _first_position: int = -1

    @property
    def ok(self) -> bool:
        return not self.failure and self.first_disagreement is None and self.checked > 0

    def add(self, case: Case, given: Mapping[Key, Any]) -> None:
        distances = list(self._distances(case, given))
        self.checked += 1
        worst = max(distances, key=lambda distance: distance.badness)
        if self.worst is None or worst.badness > self.worst.badness:
            self.worst = worst
        wrong = next((distance for distance in distances if not distance.ok), None)
        if wrong is not None and (self.first_disagreement is None or case.position < self._first_position):
            self.first_disagreement, self._first_position = wrong, case.position

    def _distances(self, case: Case, given: Mapping[Key, Any]) -> Iterator[Distance]:
        tolerance = layer_tolerance(self.precision, on_gpu=self.on_gpu, op=case.layer.op)
        for key, expected in case.expected.items():
            error = relative_error(given.get(key), expected.value, floor=expected.scale)
            yield Distance.of(layer=case.layer.name, what=_in_words(key), relative_error=error, tolerance=tolerance)

    @property
    def result(self) -> LayersChecked:
        return LayersChecked(
            ok=self.ok,
            precision=self.precision,
            checked=self.checked,
            worst=self.worst or Absent(self.failure or "no layer was checked"),
            first_disagreement=self.first_disagreement or Absent("no layer disagrees"),
            failure=self.failure or None,
        )


def check_layers(
    cases: Iterator[Case],
    workers: Mapping[str, Conversation],
    checks: Mapping[str, LayerCheck],
    graph: Graph,
    on_progress: OnProgress,
) -> None:
    """Send each case to every worker. A worker that fails is left out of the rest."""
    going = dict(workers)
    while going and (case := next(cases, None)) is not None:
        for name, worker in list(going.items()):
            try:
                checks[name].add(case, worker.layer(case.layer.name, case.inputs, case.upstream))
            except JobFailed as failure:
                checks[name].failure = f"layer {case.layer.name}: {failure.outcome}: {failure.reason}"
                del going[name]
        on_progress("layer by layer", max((checks[name].checked for name in going), default=0) / len(graph))


def _in_words(key: Key) -> str:
    kind, name = key
    if kind == "output":
        return "output"
    if kind == "input":
        return f"gradient of the input from {name}"
    return f"gradient of {name}" if kind == "parameter" else name
