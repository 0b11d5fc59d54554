"""Memory of a step: predicted layer by layer from the graph, and measured as the framework runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
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


class MemoryFound(Struct, frozen=True, kw_only=True):
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
        predicted=predicted
        if isinstance(predicted, Absent)
        else PredictedMemory.like(predicted, workspace_bytes=Absent(_NOT_PREDICTED)),
        measured_peak_bytes=found.peak.step_bytes,
        measured=_measured(found, predicted),
        layers=_seen_layers(job, found.layers)
        if isinstance(predicted, Absent)
        else [_layer(each.name, each.op, each, _seen(each.name, found.layers)) for each in predicted.layers],
    )
    finding = bare_finding("memory", job, content)
    return replace(finding, outcome="ok", workload=job.workload, setup=setup_of(job, found.launched))


def failure_report(job: Job, failure: JobFailed) -> Finding:
    """Return the result for a job that did not run."""
    finding = bare_finding("memory", job, MemoryUse(batch=job.batch, phase=job.phase))
    return replace(finding, outcome=failure.outcome, workload=job.workload, failure=failure.in_finding)


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
        []
        if isinstance(seen, Absent)
        else [_layer(name, each.op or ops.get(name, ""), each, each) for name, each in seen.items()]
    )


def _seen(name: str, layers: Mapping[str, MemoryOfLayer] | Absent) -> MemoryOfLayer | Absent:
    return layers if isinstance(layers, Absent) else layers[name]


def _layer(name: str, op: str, held: graph.LayerMemory | MemoryOfLayer, seen: MemoryOfLayer | Absent) -> LayerMemory:
    """`held`: parameters and what they need, from the graph, or as the framework told. `seen`: in a step."""
    kept = seen if isinstance(seen, Absent) else seen.kept_bytes
    kept_at_least = 0 if isinstance(kept, Absent) else kept
    return LayerMemory(
        name=name,
        op=op,
        parameters_bytes=held.parameters_bytes,
        gradients_bytes=held.gradients_bytes,
        optimizer_bytes=held.optimizer_bytes,
        activations_bytes=held.activations_bytes if isinstance(held, graph.LayerMemory) else kept_at_least,
        kept_bytes=kept,
        workspace_bytes=seen if isinstance(seen, Absent) else seen.workspace_bytes,
    )
