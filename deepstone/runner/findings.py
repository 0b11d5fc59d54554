"""Measures findings: layers, memory, convolutions, ceilings. A failure is a finding too."""

from __future__ import annotations

from msgspec.structs import replace

from deepstone.environments.environment import Environment
from deepstone.results.ceilings import Ceiling, Ceilings
from deepstone.results.findings import Finding, FindingFailure
from deepstone.results.memory import MemoryUse
from deepstone.results.record import OUTCOMES, SCHEMA, Setup
from deepstone.runner.assemble import environment_of, now
from deepstone.runner.ceilings import measure_ceilings
from deepstone.runner.conversation import JobFailed
from deepstone.runner.convolutions.lab import LabEffort, run_lab
from deepstone.runner.convolutions.report import lab_report
from deepstone.runner.convolutions.results import Lab
from deepstone.runner.job import Job, Machine, storable
from deepstone.runner.largest_batch import find_largest_batch
from deepstone.runner.layers.measure import LayersEffort, find_layers
from deepstone.runner.layers.report import layers_report
from deepstone.runner.measurement import Launched, OnProgress, no_progress
from deepstone.runner.memory import failure_report, find_memory, memory_report
from deepstone.runner.peaks import cache_peaks


def layers_finding(job: Job, effort: LayersEffort, on_progress: OnProgress = no_progress) -> Finding:
    """`deepstone layers` for one framework."""
    started_at = now()
    try:
        found = find_layers(job, effort, on_progress)
    except JobFailed as failure:
        return failed_finding("layers", job, failure)
    return layers_report(job, found, started_at=started_at)


def memory_finding(
    job: Job,
    *,
    timeout_s: float,
    largest: bool = False,
    limit_bytes: int | None = None,
    on_progress: OnProgress = no_progress,
) -> Finding:
    """`deepstone memory` for one framework."""
    try:
        found = find_memory(job, timeout_s=timeout_s, on_progress=on_progress)
        finding = memory_report(job, found)
    except JobFailed as failure:
        found = failure
        finding = failure_report(job, failure)
    if not largest or finding.outcome not in ("ok", "oom"):
        return finding
    search = find_largest_batch(job, found, given_bytes=limit_bytes, timeout_s=timeout_s, on_progress=on_progress)
    assert isinstance(finding.content, MemoryUse)
    return replace(finding, content=replace(finding.content, largest_batch=search))


def lab_finding(job: Job, effort: LabEffort, lab: Lab, on_progress: OnProgress = no_progress) -> Finding:
    """`deepstone conv` for one batch; if the lab fails, with the results before the failure."""
    outcome, failure = "ok", None
    try:
        run_lab(job, effort, lab, on_progress)
    except JobFailed as failed:
        outcome, failure = failed.outcome, failed.in_finding
    found = Finding(schema=SCHEMA, kind="conv") if lab.is_empty else lab_report(job, lab)
    return replace(found, outcome=outcome, failure=failure)


def peaks_finding(
    environment: Environment, machine: Machine, device: str, on_progress: OnProgress = no_progress
) -> Ceiling:
    """Measure an entry of `deepstone doctor --peaks` and cache it; absent if the framework does not run."""
    entry = measure_ceilings(environment, machine, device, on_progress)
    if entry.absent is None:
        cache_peaks(entry, machine, environment)
    return entry


def ceilings_finding(entry: Ceiling) -> Finding:
    """Return one entry of `doctor --peaks` as a finding."""
    found = Finding(schema=SCHEMA, kind="peaks", outcome="ok", content=Ceilings(peaks=[entry]))
    if entry.absent is None:
        return found
    outcome, _, reason = entry.absent.partition(": ")
    known = next((each for each in OUTCOMES if each == outcome), "unsupported")
    return replace(found, outcome=known, failure=FindingFailure(reason=reason or outcome, stderr_tail=""))


def storable_finding(found: Finding, job: Job, *, task: str, started_at: str) -> Finding:
    """Add to a finding the fields that the store requires, and its task."""
    about_model = found.kind != "peaks" and found.model != ""
    finding = replace(
        found,
        task=task,
        model=found.model or (job.model.name if about_model else ""),
        started_at=found.started_at or started_at,
        command=found.command or [storable(word) for word in job.command],
        identity=job.identity,
        environment=found.environment or environment_of(job, Launched()),
    )
    if not about_model:
        return finding
    return replace(
        finding,
        graph_sha=job.model.graph.sha,
        workload=job.workload,
        setup=found.setup or Setup(requested=job.request),
    )


def failed_finding(kind: str, job: Job, failure: JobFailed) -> Finding:
    return Finding(schema=SCHEMA, kind=kind, model=job.model.name, outcome=failure.outcome, failure=failure.in_finding)
