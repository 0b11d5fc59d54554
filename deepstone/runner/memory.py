"""Memory of a step: predicted layer by layer from the graph, and measured as the framework runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.graph import memory as graph
from deepstone.graph.cost import COST_UNKNOWN
from deepstone.graph.memory import StepMemory
from deepstone.results.findings import Finding
from deepstone.results.memory import LayerMemory, MeasuredMemory, MemoryUse, PredictedMemory
from deepstone.runner.assemble import bare_finding, setup_of
from deepstone.runner.conversation import Conversation, JobFailed, talking_to_worker
from deepstone.runner.examine import probe_job
from deepstone.runner.job import Job
from deepstone.runner.measurement import Launched, OnProgress, no_progress, start
from deepstone.runner.replies import MemoryOfLayer, MemoryPeak

_STEPS = 1  # after the first, which creates the optimizer state

_NOT_PREDICTED = "a framework chooses it; `measured` tells what was seen"


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryFound:
    """`layers` is the framework's own account of each layer."""

    launched: Launched
    peak: MemoryPeak
    layers: dict[str, MemoryOfLayer] | Absent


def find_memory(
    job: Job, *, timeout_s: float, by_layer: bool = True, on_progress: OnProgress = no_progress
) -> MemoryFound:
    """Raises JobFailed if the job does not run, MissingError if something is missing."""
    reason = job.broken_rule
    if reason:
        raise JobFailed("unsupported", reason, stage="plan")
    launched = Launched()
    with talking_to_worker(job, timeout_s=timeout_s) as conversation:
        # A tiny network goes first, so that the framework's own memory is allocated before this one is built.
        tiny = probe_job(job.environment, job.machine, {**job.request, "batch": 1}) if by_layer else None
        start(conversation, job, launched, on_progress, beforehand=tiny)
        on_progress("the peak of a step", 0.4)
        peak = conversation.memory_peak(_STEPS)
        on_progress("layer by layer", 0.7)
        layers = _by_layer(conversation) if by_layer else Absent("not asked for")
        conversation.close()
    return MemoryFound(launched=launched, peak=peak, layers=layers)


def _by_layer(conversation: Conversation) -> dict[str, MemoryOfLayer] | Absent:
    try:
        return conversation.memory_by_layer()
    except JobFailed as failure:
        if failure.outcome != "unsupported":
            raise
        return Absent(failure.reason)


def memory_report(job: Job, found: MemoryFound) -> Finding:
    """Return the result of `deepstone memory` for one framework."""
    predicted = COST_UNKNOWN if job.model.graph.opaque else job.memory
    content = MemoryUse(
        batch=job.batch,
        phase=job.phase,
        predicted=predicted if isinstance(predicted, Absent) else _predicted(predicted),
        measured_peak_bytes=found.peak.step_bytes,
        measured=_measured(found, predicted),
        layers=_seen_layers(job, found.layers)
        if isinstance(predicted, Absent)
        else [_layer(each, found.layers) for each in predicted.layers],
    )
    finding = bare_finding("memory", job, content)
    return replace(finding, outcome="ok", workload=job.workload, setup=setup_of(job, found.launched))


def failure_report(job: Job, failure: JobFailed) -> Finding:
    """Return the result for a job that did not run."""
    finding = bare_finding("memory", job, MemoryUse(batch=job.batch, phase=job.phase))
    return replace(finding, outcome=failure.outcome, workload=job.workload, failure=failure.in_finding)


def _predicted(memory: StepMemory) -> PredictedMemory:
    return PredictedMemory(
        parameters_bytes=memory.parameters_bytes,
        gradients_bytes=memory.gradients_bytes,
        optimizer_bytes=memory.optimizer_bytes,
        activations_bytes=memory.activations_bytes,
        workspace_bytes=Absent(_NOT_PREDICTED),
        total_bytes=memory.total_bytes,
    )


def _measured(found: MemoryFound, predicted: StepMemory | Absent) -> MeasuredMemory:
    """Return the peak, the part of it kept for backward, the largest workspace, and the error of the prediction."""
    peak_bytes, layers = found.peak.step_bytes, found.layers
    beyond: int | Absent = Absent("the peak or the prediction is not known")
    if not isinstance(peak_bytes, Absent) and not isinstance(predicted, Absent):
        beyond = peak_bytes - predicted.total_bytes
    kept = layers if isinstance(layers, Absent) else _together((each.kept_bytes for each in layers.values()), sum)
    most = layers if isinstance(layers, Absent) else _together((each.workspace_bytes for each in layers.values()), max)
    return MeasuredMemory(
        peak_bytes=peak_bytes,
        kept_bytes=kept,
        workspace_bytes=most,
        beyond_prediction_bytes=beyond,
        process=found.peak.memory,
    )


def _together(sizes: Iterable[int | Absent], function: Callable[[list[int]], int]) -> int | Absent:
    """Combine the sizes of all layers; absent if one of them is."""
    known: list[int] = []
    for size in sizes:
        if isinstance(size, Absent):
            return size
        known.append(size)
    return function(known)


def _seen_layers(job: Job, seen: Mapping[str, MemoryOfLayer] | Absent) -> list[LayerMemory]:
    """Of a user's own module, of which only its framework knows the layers: all of it was seen in a step."""
    ops = {layer.name: layer.op.kind for layer in job.model.graph.layers}
    return (
        [] if isinstance(seen, Absent) else [_seen_layer(name, ops.get(name, ""), each) for name, each in seen.items()]
    )


def _seen_layer(name: str, op: str, seen: MemoryOfLayer) -> LayerMemory:
    return LayerMemory(
        name=name,
        op=seen.op or op,
        parameters_bytes=seen.parameters_bytes,
        gradients_bytes=seen.gradients_bytes,
        optimizer_bytes=seen.optimizer_bytes,
        activations_bytes=0 if isinstance(seen.kept_bytes, Absent) else seen.kept_bytes,
        kept_bytes=seen.kept_bytes,
        workspace_bytes=seen.workspace_bytes,
    )


def _layer(layer: graph.LayerMemory, measured: Mapping[str, MemoryOfLayer] | Absent) -> LayerMemory:
    return LayerMemory(
        name=layer.name,
        op=layer.op,
        parameters_bytes=layer.parameters_bytes,
        gradients_bytes=layer.gradients_bytes,
        optimizer_bytes=layer.optimizer_bytes,
        activations_bytes=layer.activations_bytes,
        kept_bytes=measured if isinstance(measured, Absent) else measured[layer.name].kept_bytes,
        workspace_bytes=measured if isinstance(measured, Absent) else measured[layer.name].workspace_bytes,
    )
