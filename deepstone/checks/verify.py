"""Checks that frameworks compute the same. Three checks against the float64 reference, on the same weights and batch.

    layers     each layer isolated, given the reference's input and upstream gradient, in the precision under test
    float64    the whole step in double precision: gradients to 1e-9, the loss to 1e-8 after five steps
    measured   the whole step in the precision under test: reported, and bounded by four times torch's own distance

The first two are sharp. The third cannot be: rounding alone moves whole-network fp32 gradients by some per cent. In a
very deep network rounding can even change the loss in float64; by how much is then measured, and allowed
(whole_step.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.checks.as_measured import distance_of, judge_as_measured
from deepstone.checks.sameness import FrameworkSameness, Sameness
from deepstone.checks.whole_step import (
    GRADIENT_TOLERANCE,
    LOSS_TOLERANCE,
    STEPS,
    ReferenceSteps,
    Sensitivity,
    find_sensitivity,
    loss_errors,
    reference_steps,
    worst_gradient,
    worst_loss,
)
from deepstone.checks.workers import begin, check_every_layer, check_job, failing_into, loaded, seed_of, start_all
from deepstone.errors import MissingError
from deepstone.results.sameness import Distance
from deepstone.runner.conversation import JobFailed
from deepstone.runner.job import Job
from deepstone.runner.measurement import OnProgress, no_progress
from deepstone.setups.axes import AUTO


def verify(
    jobs: Mapping[str, Job], *, yardstick: Job | None, timeout_s: float, on_progress: OnProgress = no_progress
) -> Sameness:
    """The jobs share model, batch, phase and seed; `yardstick` is the trusted framework with its defaults, if
    installed.

    Workers start before the reference computes, so that failures are reported without waiting for it.
    """
    job = next(iter(jobs.values()))
    found = {name: FrameworkSameness() for name in jobs}
    steps, distances = ReferenceSteps(losses=[], gradients={}), dict[str, Distance]()
    with ExitStack() as stack:
        workers = start_all(stack, jobs, found, timeout_s, on_progress)
        if workers:
            steps = reference_steps(
                job.model.graph, batch=job.batch, seed=seed_of(job), phase=job.phase, on_progress=on_progress
            )
        for name, worker in workers.items():
            with failing_into(found[name]):
                distances[name] = distance_of(worker, steps, job)
        check_every_layer(workers, job, found, on_progress)
    judge_as_measured(jobs, yardstick, distances, steps, found, timeout_s, on_progress)
    for number, (name, framework_job) in enumerate(jobs.items()):
        if not found[name].failure:
            on_progress(f"{name} in float64", number / len(jobs))
            _check_float64(framework_job, steps, found[name], timeout_s)
    sensitivity = _allow_for_rounding(job, steps, found, on_progress)
    return Sameness(reference=steps, frameworks=found, sensitivity=sensitivity)


def _allow_for_rounding(
    job: Job, steps: ReferenceSteps, found: Mapping[str, FrameworkSameness], on_progress: OnProgress
) -> Sensitivity | None:
    """If only the losses exceed their bound in float64, compare them with the measured effect of rounding."""
    suspects = [result for result in found.values() if result.beyond_bound_at_the_end_only]
    if not suspects or job.phase == "gradient":
        return None
    graph = job.model.graph
    sensitivity = find_sensitivity(
        graph, steps, batch=job.batch, seed=seed_of(job), phase=job.phase, on_progress=on_progress
    )
    for result in suspects:
        assert not isinstance(result.float64, Absent)
        *others, losses = result.float64
        worst = sensitivity.worst_of(loss_errors(result.losses, steps), losses.tolerance, losses.layer)
        result.float64 = [*others, worst] if worst else others or Absent(sensitivity.description())
    return sensitivity


def _check_float64(job: Job, steps: ReferenceSteps, found: FrameworkSameness, timeout_s: float) -> None:
    """Check the setup in double precision; if its engine has none, with the framework's own choice."""
    attempts = [job] if job.request["engine"] == AUTO else [job, replace(job, request={**job.request, "engine": AUTO})]
    for attempt in attempts:
        try:
            found.float64 = list(_float64_distances(attempt, steps, found, timeout_s))
            return
        except JobFailed as failure:
            if failure.outcome != "unsupported":
                found.failure = f"in float64: {failure.outcome}: {failure.reason}"
                return
            found.float64 = Absent(f"unsupported: {failure.reason}")
        except MissingError as error:
            found.failure = str(error)
            return


def _float64_distances(
    job: Job, steps: ReferenceSteps, found: FrameworkSameness, timeout_s: float
) -> Iterator[Distance]:
    loss_layer = job.model.graph.losses[0].name
    if job.phase == "forward":
        with ExitStack() as stack:
            _, worker = begin(stack, check_job(job, batch=job.batch, precision="fp64"), timeout_s)
            found.losses = worker.losses(0)
        yield worst_loss(found.losses, steps, GRADIENT_TOLERANCE, loss_layer)
        return
    with ExitStack() as stack:
        _, worker = begin(stack, check_job(job, batch=job.batch, phase="gradient", precision="fp64"), timeout_s)
        found.losses = worker.losses(0)
        yield worst_gradient(loaded(worker, "gradients"), steps, GRADIENT_TOLERANCE)
    if job.phase == "train":
        with ExitStack() as stack:
            _, worker = begin(stack, check_job(job, batch=job.batch, phase="train", precision="fp64"), timeout_s)
            found.losses = [*worker.losses(0), *worker.losses(STEPS - 1)]
        yield worst_loss(found.losses, steps, LOSS_TOLERANCE, loss_layer)
