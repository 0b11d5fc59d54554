"""Memory of a step, predicted and measured, and the largest batch that fits."""

from __future__ import annotations

from typing import ClassVar

from deepstone.results.parts import OrAbsent, Part, Table


class PredictedMemory(Part, frozen=True, kw_only=True):
    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    workspace_bytes: OrAbsent[int]
    total_bytes: int


class MeasuredMemory(Part, frozen=True, kw_only=True):
    """`kept_bytes`: kept for backward. `process`: all that the worker reports."""

    peak_bytes: OrAbsent[int]
    kept_bytes: OrAbsent[int]
    workspace_bytes: OrAbsent[int]
    beyond_prediction_bytes: OrAbsent[int]
    process: Table[OrAbsent[int]]


class LayerMemory(Part, frozen=True, kw_only=True):
    """Of a user's own module nothing is predicted: these sizes are those of a step, and `activations_bytes` are
    kept."""

    name: str
    op: str
    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    kept_bytes: OrAbsent[int]
    workspace_bytes: OrAbsent[int]


class TriedBatch(Part, frozen=True, kw_only=True):
    """The result of one batch. A peak above the limit also counts as out of memory."""

    batch: int
    outcome: str
    peak_bytes: OrAbsent[int]
    reason: str

    @property
    def fits(self) -> bool:
        return self.outcome == "ok"


class LargestBatch(Part, frozen=True, kw_only=True):
    """`confirmed`: the largest batch that ran and fitted; 0 if none did. `too_large`: the smallest that ran and did not
    fit. `limit`: a description of the limit."""

    predicted: int
    confirmed: int
    too_large: OrAbsent[int]
    limit_bytes: OrAbsent[int]
    tried: list[TriedBatch]
    limit: str


class MemoryUse(Part, frozen=True, kw_only=True):
    """A failed job has only the requested setup, and perhaps the largest batch."""

    KIND: ClassVar = "memory"

    batch: int
    phase: str
    predicted: OrAbsent[PredictedMemory] | None = None
    measured_peak_bytes: OrAbsent[int] | None = None
    measured: MeasuredMemory | None = None
    layers: list[LayerMemory] | None = None
    largest_batch: LargestBatch | None = None
