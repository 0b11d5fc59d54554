"""What a step takes of memory: predicted layer by layer from the graph, and measured as the framework ran it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepstone.absent import Absent, as_json
from deepstone.graph.cost import COST_UNKNOWN
from deepstone.graph.memory import LayerMemory, StepMemory
from deepstone.records.schema import is_absent
from deepstone.runner.conversation import Conversation, JobFailed, MemoryPeak, talking_to_worker
from deepstone.runner.examine import probe_job
from deepstone.runner.job import Job, storable
from deepstone.runner.measurement import Launched, OnProgress, no_progress, start

SCHEMA = 1
_STEPS = 1  # after the first, which makes what the optimizer keeps: the second has everything

_NOT_PREDICTED = "a framework chooses it; `measured` tells what was seen"


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryFound:
    """`layers` is what the framework's own account says of each layer."""

    launched: Launched
    peak: MemoryPeak
    layers: dict[str, dict[str, Any]] | Absent


def find_memory(
    job: Job, *, timeout_s: float, by_layer: bool = True, on_progress: OnProgress = no_progress
) -> MemoryFound:
    """Raises JobFailed when the job does not run, MissingError when something is not there."""
    reason = job.broken_rule
    if reason:
        raise JobFailed("unsupported", reason, stage="plan")
    launched = Launched()
    with talking_to_worker(job, timeout_s=timeout_s) as conversation:
        # What the framework takes to train anything at all, a tiny network has it take before this one is built.
        tiny = probe_job(job.environment, job.machine, {**job.request, "batch": 1}) if by_layer else None
        start(conversation, job, launched, on_progress, beforehand=tiny)
        on_progress("the peak of a step", 0.4)
        peak = conversation.memory_peak(_STEPS)
        on_progress("layer by layer", 0.7)
        layers = _by_layer(conversation) if by_layer else Absent("not asked for")
        conversation.close()
    return MemoryFound(launched=launched, peak=peak, layers=layers)


def _by_layer(conversation: Conversation) -> dict[str, dict[str, Any]] | Absent:
    try:
        return conversation.memory_by_layer()
    except JobFailed as failure:
        if failure.outcome != "unsupported":
            raise
        return Absent(failure.reason)


def memory_report(job: Job, found: MemoryFound) -> dict[str, Any]:
    """The JSON of `deepstone memory` for one framework."""
    assert found.launched.prepared is not None
    predicted = COST_UNKNOWN if job.model.graph.opaque else job.memory
    return as_json(
        {
            **_asked(job),
            "setup": {"requested": dict(job.request), "effective": found.launched.prepared.effective},
            "predicted": predicted if isinstance(predicted, Absent) else _predicted(predicted),
            "measured_peak_bytes": found.peak.step_bytes,
            "measured": _measured(found, predicted),
            "layers": [] if isinstance(predicted, Absent) else [_layer(each, found) for each in predicted.layers],
        }
    )


def failure_report(job: Job, failure: JobFailed) -> dict[str, Any]:
    """The same where the job did not run."""
    return {**as_json(_asked(job)), "failure": {"reason": failure.reason, "stderr_tail": failure.stderr_tail}}


def _asked(job: Job) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": "memory",
        "model": job.model.name,
        "command": [storable(word) for word in job.command],
        "batch": job.batch,
        "phase": job.phase,
        "workload": job.workload,
    }


def _predicted(memory: StepMemory) -> dict[str, object]:
    return {
        "parameters_bytes": memory.parameters_bytes,
        "gradients_bytes": memory.gradients_bytes,
        "optimizer_bytes": memory.optimizer_bytes,
        "activations_bytes": memory.activations_bytes,
        "workspace_bytes": Absent(_NOT_PREDICTED),
        "total_bytes": memory.total_bytes,
    }


def _measured(found: MemoryFound, predicted: StepMemory | Absent) -> dict[str, object]:
    """The peak, what of it is kept for backward, the largest workspace, and how far the peak is from the prediction."""
    peak_bytes = found.peak.step_bytes
    beyond: int | Absent = Absent("the peak or the prediction is not known")
    if not isinstance(peak_bytes, Absent) and not isinstance(predicted, Absent):
        beyond = peak_bytes - predicted.total_bytes
    return {
        "peak_bytes": peak_bytes,
        "kept_bytes": _over_layers(found, "kept_bytes", sum),
        "workspace_bytes": _over_layers(found, "workspace_bytes", max),
        "beyond_prediction_bytes": beyond,
        "process": found.peak.memory,
    }


def _over_layers(found: MemoryFound, what: str, together: Any) -> int | Absent:
    if isinstance(found.layers, Absent):
        return found.layers
    values = [memory[what] for memory in found.layers.values()]
    unknown = next((value for value in values if is_absent(value)), None)
    return Absent(unknown["absent"]) if unknown is not None else int(together(values))


def _layer(layer: LayerMemory, found: MemoryFound) -> dict[str, object]:
    seen: Mapping[str, object] = (
        {"kept_bytes": found.layers, "workspace_bytes": found.layers}
        if isinstance(found.layers, Absent)
        else found.layers[layer.name]
    )
    return {
        "name": layer.name,
        "op": layer.op,
        "parameters_bytes": layer.parameters_bytes,
        "gradients_bytes": layer.gradients_bytes,
        "optimizer_bytes": layer.optimizer_bytes,
        "activations_bytes": layer.activations_bytes,
        **seen,
    }
