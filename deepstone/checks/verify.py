"""Do frameworks compute the same thing? Three checks against the float64 reference, on the same weights and batch.

    layers     each layer alone, given the reference's input and upstream gradient, in the precision under test
    float64    the whole step in double precision: gradients to 1e-9, the loss to 1e-8 after five steps
    measured   the whole step in the precision under test: reported, and bounded by four times torch's own distance

The first two are sharp. The third cannot be: rounding alone takes whole-network fp32 gradients some per cent away. In a
very deep network rounding can decide even float64's loss; how far is then measured, and allowed (rounding.py).
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
from deepstone.backends.registry import YARDSTICK
from deepstone.checks.agreement import Distance, layer_tolerance
from deepstone.checks.cases import Trajectory
from deepstone.checks.layers import LayerCheck, check_layers
from deepstone.checks.rounding import Sensitivity, find_sensitivity
from deepstone.checks.sameness import FrameworkSameness, Sameness
from deepstone.checks.whole_step import (
    GRADIENT_TOLERANCE,
    LOSS_TOLERANCE,
    STEPS,
    ReferenceSteps,
    loss_errors,
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
ALLOWED_OVER_YARDSTICK = 4.0
SEEDS = 8  # that a whole step may be tried with

# Axes that a check does not look at: it makes one kind of update, and what dropout drops is chance.
NOT_CHECKED = ("optimizer", "dropout")


def verify(jobs: Mapping[str, Job], *, yardstick: Job | None, timeout_s: float, tell: Tell = silent) -> Sameness:
    """The jobs share model, batch, phase and seed; `yardstick` is that framework as it comes, if it is here.

    Workers start before the reference computes, so that what cannot be done is told without waiting for it.
    """
    job = next(iter(jobs.values()))
    found = {name: FrameworkSameness() for name in jobs}
    steps, distances = ReferenceSteps(losses=[], gradients={}), dict[str, Distance]()
    with ExitStack() as stack:
        workers = _start_all(stack, jobs, found, timeout_s, tell)
        if workers:
            steps = reference_steps(job.model.graph, batch=job.batch, seed=_seed(job), phase=job.phase, tell=tell)
        for name, worker in workers.items():
            with _failing_into(found[name]):
                distances[name] = _distance(worker, steps, job)
        _check_layers(workers, job, found, tell)
    if distances:
        bound = _bound(jobs, yardstick, distances, steps, timeout_s, tell)
        for name, distance in distances.items():
            found[name].measured = bound if isinstance(bound, Absent) else replace(distance, tolerance=bound)
        _try_other_seeds(jobs, yardstick, found, timeout_s, tell)
    for number, (name, framework_job) in enumerate(jobs.items()):
        if not found[name].failure:
            tell(f"{name} in float64", number / len(jobs))
            _check_float64(framework_job, steps, found[name], timeout_s)
    sensitivity = _allow_for_rounding(job, steps, found, tell)
    return Sameness(reference=steps, frameworks=found, sensitivity=sensitivity)


def _allow_for_rounding(
    job: Job, steps: ReferenceSteps, found: Mapping[str, FrameworkSameness], tell: Tell
) -> Sensitivity | None:
    """Losses beyond their bound in float64, though all else agrees, are held against what rounding does to them."""
    suspects = [result for result in found.values() if result.beyond_bound_at_the_end_only]
    if not suspects or job.phase == "gradient":
        return None
    graph = job.model.graph
    sensitivity = find_sensitivity(graph, steps, batch=job.batch, seed=_seed(job), phase=job.phase, tell=tell)
    for result in suspects:
        assert not isinstance(result.float64, Absent)
        *others, losses = result.float64
        worst = sensitivity.worst_of(loss_errors(result.losses, steps), losses.tolerance, losses.layer)
        result.float64 = [*others, worst] if worst else others or Absent(sensitivity.told())
    return sensitivity


def _try_other_seeds(
    jobs: Mapping[str, Job],
    yardstick: Job | None,
    found: Mapping[str, FrameworkSameness],
    timeout_s: float,
    tell: Tell,
) -> None:
    """A whole step beyond its bound though every layer agrees is looked at again with other weights and data.

    Rounding can turn a choice (which of two values is the larger, whether one is above zero) in one framework and not
    in another, and that shows in the whole network as no rounding does. With some seeds it happens to none, or to the
    yardstick too. An error shows with all.
    """
    first = next(iter(jobs.values()))
    for seed in range(_seed(first) + 1, _seed(first) + SEEDS):
        suspects = {name: job for name, job in jobs.items() if found[name].beyond_bound_as_a_whole_only}
        if not suspects:
            return
        again = {name: replace(job, request={**job.request, "seed": seed}) for name, job in suspects.items()}
        by = None if yardstick is None else replace(yardstick, request={**yardstick.request, "seed": seed})
        phase = "forward" if first.phase == "forward" else "gradient"
        steps = reference_steps(first.model.graph, batch=first.batch, seed=seed, phase=phase, tell=tell)
        distances: dict[str, Distance] = {}
        for name, job in again.items():
            with ExitStack() as stack, _failing_into(found[name]):
                distances[name] = _distance(_begin(stack, _without_update(job), timeout_s)[1], steps, job)
        bound = _bound(again, by, distances, steps, timeout_s, tell)
        for name, distance in distances.items():
            if not isinstance(bound, Absent):
                found[name].try_seed(replace(distance, tolerance=bound))


def check_layers_only(jobs: Mapping[str, Job], *, timeout_s: float, tell: Tell = silent) -> dict[str, LayerCheck]:
    """The layer check alone, which is what a comparison across frameworks asks for."""
    found = {name: FrameworkSameness() for name in jobs}
    with ExitStack() as stack:
        workers = _start_all(stack, jobs, found, timeout_s, tell)
        _check_layers(workers, next(iter(jobs.values())), found, tell)
    return {
        name: result.layers or LayerCheck(precision="not started", failure=result.failure)
        for name, result in found.items()
    }


def check_job(job: Job, *, batch: int = CHECK_BATCH, phase: str | None = None, **changed: Value) -> Job:
    """The job as a check runs it: the same setup where it decides what is computed, on a small batch."""
    defaults = {name: AXES[name].default for name in NOT_CHECKED}
    request = {**job.request, **defaults, "batch": batch, "phase": phase or job.phase, **changed}
    return replace(job, request=request, generic_weights=True)


def _start_all(
    stack: ExitStack, jobs: Mapping[str, Job], found: Mapping[str, FrameworkSameness], timeout_s: float, tell: Tell
) -> dict[str, Conversation]:
    """The setups as asked for, all at once, so that the reference need compute every layer only once."""
    workers: dict[str, Conversation] = {}
    for name, job in jobs.items():
        tell(f"starting {name}", 0.0)
        with _failing_into(found[name]):
            launched, worker = _begin(stack, _without_update(job), timeout_s)
            assert launched.prepared is not None
            precision = str(launched.prepared.effective["precision"]["value"])
            found[name].layers = LayerCheck(precision=precision, on_gpu=launched.on_gpu)
            found[name].losses = worker.losses(0)
            workers[name] = worker
    return workers


def _check_layers(
    workers: Mapping[str, Conversation], job: Job, found: Mapping[str, FrameworkSameness], tell: Tell
) -> None:
    graph = job.model.graph
    trajectory = Trajectory(graph, batch=job.batch, seed=_seed(job), precision=str(job.request["precision"]))
    cases = trajectory.forward_cases() if job.phase == "forward" else trajectory.training_cases()
    checks = {name: result.layers for name, result in found.items() if result.layers is not None}
    check_layers(cases, workers, checks, graph, tell)


def _without_update(job: Job) -> Job:
    """A step whose gradients can be read; a fused training step keeps them to itself."""
    return check_job(job, batch=job.batch, phase="forward" if job.phase == "forward" else "gradient")


def _distance(worker: Conversation, steps: ReferenceSteps, job: Job) -> Distance:
    """From the reference, in whatever precision the worker runs; what is allowed is not known yet."""
    if steps.gradients:
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
    """Four times the yardstick's own distance, in the same precision; at the least what one layer may be off."""
    if yardstick is None:
        return Absent(f"{YARDSTICK}, whose own distance is the yardstick, is not installed")
    own = next((distances[name] for name, job in jobs.items() if job == yardstick and name in distances), None)
    if own is None:
        tell(f"{YARDSTICK} as the yardstick", 0.0)
        try:
            with ExitStack() as stack:
                own = _distance(_begin(stack, _without_update(yardstick), timeout_s)[1], steps, yardstick)
        except (JobFailed, MissingError) as failure:
            return Absent(f"{YARDSTICK}, whose own distance is the yardstick, failed: {failure}")
    if not math.isfinite(own.relative_error):
        return Absent(f"in this precision the numbers of the whole network are not finite, in {YARDSTICK} either")
    return max(ALLOWED_OVER_YARDSTICK * own.relative_error, layer_tolerance(str(yardstick.request["precision"])))


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
