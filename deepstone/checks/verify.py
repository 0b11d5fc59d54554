"""Do frameworks compute the same thing? Three checks against the float64 reference, on the same weights and batch.

    layers     each layer alone, given the reference's input and upstream gradient, in the precision under test
    float64    the whole step in double precision: gradients to 1e-9, the loss to 1e-8 after five steps
    measured   the whole step in the precision under test: reported, and bounded by four times torch's own distance

The first two are sharp. The third cannot be: rounding alone takes whole-network fp32 gradients some per cent away.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepstone.absent import Absent
from deepstone.checks.agreement import Distance, layer_tolerance
from deepstone.checks.cases import Trajectory
from deepstone.checks.layers import LayerCheck, check_layers
from deepstone.checks.sameness import FrameworkSameness, Sameness
from deepstone.checks.whole_step import (
    GRADIENT_TOLERANCE,
    LOSS_TOLERANCE,
    STEPS,
    ReferenceSteps,
    reference_steps,
    worst_gradient,
    worst_loss,
)
from deepstone.errors import MissingError
from deepstone.runner.conversation import Conversation, JobFailed, talking_to_worker
from deepstone.runner.job import Job
from deepstone.runner.launch import Launched, Tell, silent, start
from deepstone.setups.axes import AUTO, AXES, Value
from deepstone.setups.rules import broken_rule

CHECK_BATCH = 2  # two samples show every error that more would, and the reference computes in float64 NumPy
ALLOWED_OVER_TORCH = 4.0

# What decides nothing about what is computed, only how fast or how often; a check takes the default.
_BESIDE_THE_POINT = ("optimizer", "dropout", "input", "input_grad", "threads", "inter_threads", "affinity")


def verify(jobs: Mapping[str, Job], *, yardstick: Job | None, timeout_s: float, tell: Tell = silent) -> Sameness:
    """All checks. The jobs share model, batch, phase and seed; `yardstick` is torch as it comes, if there is one."""
    job = next(iter(jobs.values()))
    graph, phase = job.model.graph, job.phase
    steps = reference_steps(graph, batch=job.batch, seed=_seed(job), phase=phase, tell=tell)
    found = {name: FrameworkSameness() for name in jobs}
    distances = _check_measured(jobs, steps, found, timeout_s, tell)
    bound = _bound(jobs, yardstick, distances, steps, timeout_s, tell)
    for name, distance in distances.items():
        found[name].measured = distance if isinstance(bound, Absent) else _bounded(distance, bound)
        if isinstance(bound, Absent):
            found[name].measured = bound
    for number, (name, framework_job) in enumerate(jobs.items()):
        if not found[name].failure:
            tell(f"{name} in float64", number / len(jobs))
            _check_float64(framework_job, steps, found[name], timeout_s)
    return Sameness(reference=steps, frameworks=found)


def check_layers_only(jobs: Mapping[str, Job], *, timeout_s: float, tell: Tell = silent) -> dict[str, LayerCheck]:
    """The layer check alone, which is what a comparison across frameworks asks for."""
    found = {name: FrameworkSameness() for name in jobs}
    _check_measured(jobs, None, found, timeout_s, tell)
    failed = {name: LayerCheck(precision="fp32", failure=result.failure) for name, result in found.items()}
    return {name: result.layers or failed[name] for name, result in found.items()}


def check_job(job: Job, *, batch: int = CHECK_BATCH, phase: str | None = None, **changed: Value) -> Job:
    """The job as a check runs it: the same setup where it decides what is computed, on a small batch."""
    defaults = {name: AXES[name].default for name in _BESIDE_THE_POINT}
    request = {**job.request, **defaults, "batch": batch, "phase": phase or job.phase, **changed}
    return replace(job, request=request, generic_weights=True)


def _check_measured(
    jobs: Mapping[str, Job],
    steps: ReferenceSteps | None,
    found: Mapping[str, FrameworkSameness],
    timeout_s: float,
    tell: Tell,
) -> dict[str, Distance]:
    """The setups as asked for: all workers at once, so that the reference computes every layer only once."""
    job = next(iter(jobs.values()))
    distances: dict[str, Distance] = {}
    with ExitStack() as stack:
        workers: dict[str, Conversation] = {}
        for name, framework_job in jobs.items():
            tell(f"starting {name}", 0.0)
            phase = "forward" if framework_job.phase == "forward" else "gradient"
            with _failing_into(found[name]):
                launched, worker = _begin(stack, check_job(framework_job, batch=job.batch, phase=phase), timeout_s)
                assert launched.prepared is not None
                precision = str(launched.prepared.effective["precision"]["value"])
                found[name].layers = LayerCheck(precision=precision, on_gpu=launched.on_gpu)
                found[name].losses = worker.losses(0)
                if steps is not None:
                    distances[name] = _distance(worker, steps, job)
                workers[name] = worker
        trajectory = Trajectory(
            job.model.graph, batch=job.batch, seed=_seed(job), precision=str(job.request["precision"])
        )
        cases = trajectory.forward_cases() if job.phase == "forward" else trajectory.training_cases()
        checks = {name: result.layers for name, result in found.items() if result.layers is not None}
        check_layers(cases, workers, checks, job.model.graph, tell)
    return distances


def _distance(worker: Conversation, steps: ReferenceSteps, job: Job) -> Distance:
    """From the reference, in whatever precision the worker runs; what is allowed is not known yet."""
    if steps.has_gradients:
        return worst_gradient(_loaded(worker, "gradients"), steps, math.inf)
    return worst_loss(worker.losses(0), steps, math.inf, job.model.graph.losses[0].name)


def _bound(
    jobs: Mapping[str, Job],
    yardstick: Job | None,
    distances: Mapping[str, Distance],
    steps: ReferenceSteps,
    timeout_s: float,
    tell: Tell,
) -> float | Absent:
    """Four times torch's own distance, in the same precision; at the least what one layer may be off."""
    if yardstick is None:
        return Absent("torch, whose own distance is the yardstick, is not installed")
    own = next((distances[name] for name, job in jobs.items() if job == yardstick and name in distances), None)
    if own is None:
        tell("torch as the yardstick", 0.0)
        phase = "forward" if yardstick.phase == "forward" else "gradient"
        try:
            with ExitStack() as stack:
                _, worker = _begin(stack, check_job(yardstick, batch=yardstick.batch, phase=phase), timeout_s)
                own = _distance(worker, steps, yardstick)
        except (JobFailed, MissingError) as failure:
            return Absent(f"torch, whose own distance is the yardstick, failed: {failure}")
    if not math.isfinite(own.relative_error):
        return Absent("in this precision the numbers of the whole network are not finite, in torch either")
    least = layer_tolerance(str(yardstick.request["precision"]))
    return max(ALLOWED_OVER_TORCH * own.relative_error, least)


def _bounded(distance: Distance, bound: float) -> Distance:
    return replace(distance, tolerance=bound)


def _check_float64(job: Job, steps: ReferenceSteps, found: FrameworkSameness, timeout_s: float) -> None:
    """As asked for but in double precision; where the engine asked for has none, with the framework's own choice."""
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
            _, worker = _begin(stack, check_job(job, batch=job.batch, precision="fp64"), timeout_s)
            found.losses = worker.losses(0)
        yield worst_loss(found.losses, steps, GRADIENT_TOLERANCE, loss_layer)
        return
    with ExitStack() as stack:
        _, worker = _begin(stack, check_job(job, batch=job.batch, phase="gradient", precision="fp64"), timeout_s)
        found.losses = worker.losses(0)
        yield worst_gradient(_loaded(worker, "gradients"), steps, GRADIENT_TOLERANCE)
    if job.phase == "train":
        with ExitStack() as stack:
            _, worker = _begin(stack, check_job(job, batch=job.batch, phase="train", precision="fp64"), timeout_s)
            found.losses = [*worker.losses(0), *worker.losses(STEPS - 1)]
        yield worst_loss(found.losses, steps, LOSS_TOLERANCE, loss_layer)


def _begin(stack: ExitStack, job: Job, timeout_s: float) -> tuple[Launched, Conversation]:
    reason = broken_rule(job.request)
    if reason:
        raise JobFailed("unsupported", reason, stage="plan")
    worker = stack.enter_context(talking_to_worker(job, timeout_s=timeout_s))
    launched = Launched()
    start(worker, job, launched, silent)
    return launched, worker


@contextmanager
def _failing_into(found: FrameworkSameness) -> Generator[None, None, None]:
    try:
        yield
    except JobFailed as failure:
        found.failure = f"{failure.outcome}: {failure.reason}"


def _loaded(worker: Conversation, kind: str) -> dict[str, NDArray[Any]]:
    return {name: np.load(path, mmap_mode="r") for name, path in worker.dump(kind).items()}


def _seed(job: Job) -> int:
    return int(job.request["seed"])
