"""Workers of a check: adapts jobs to the check, starts workers together, and turns failures into results."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from deepstone.checks.cases import Trajectory
from deepstone.checks.layers import LayerCheck, check_layers
from deepstone.checks.sameness import FrameworkSameness
from deepstone.runner.conversation import Conversation, JobFailed, talking_to_worker
from deepstone.runner.job import Job
from deepstone.runner.measurement import Launched, OnProgress, no_progress, start
from deepstone.setups.axes import AXES, Value
from deepstone.setups.rules import broken_rule

CHECK_BATCH = 2  # two samples show every error, and the reference computes slowly in float64 NumPy

# Axes that a check ignores: it makes one kind of update, and dropout is random.
NOT_CHECKED = ("optimizer", "dropout")


def check_job(job: Job, *, batch: int = CHECK_BATCH, phase: str | None = None, **changed: Value) -> Job:
    """Return the job for a check: the axes that affect the computed values, on a small batch."""
    defaults = {name: AXES[name].default for name in NOT_CHECKED}
    request = {**job.request, **defaults, "batch": batch, "phase": phase or job.phase, **changed}
    return replace(job, request=request, generic_weights=True)


def without_update(job: Job) -> Job:
    """Return the job without the update: the gradients of a fused training step cannot be read."""
    return check_job(job, batch=job.batch, phase="forward" if job.phase == "forward" else "gradient")


def start_all(
    stack: ExitStack,
    jobs: Mapping[str, Job],
    found: Mapping[str, FrameworkSameness],
    timeout_s: float,
    on_progress: OnProgress,
) -> dict[str, Conversation]:
    """Start all setups at once, so that the reference computes every layer only once."""
    workers: dict[str, Conversation] = {}
    for name, job in jobs.items():
        on_progress(f"starting {name}", 0.0)
        begin_s, earlier = time.monotonic(), list(workers.values())
        with failing_into(found[name]):
            launched, worker = begin(stack, without_update(job), timeout_s)
            assert launched.prepared is not None
            precision = launched.prepared.value("precision")
            found[name].layers = LayerCheck(precision=precision, on_gpu=launched.on_gpu)
            found[name].losses = worker.losses(0)
            workers[name] = worker
        for other in earlier:
            other.excuse(time.monotonic() - begin_s)
    return workers


def check_every_layer(
    workers: Mapping[str, Conversation], job: Job, found: Mapping[str, FrameworkSameness], on_progress: OnProgress
) -> Trajectory:
    """Check layer by layer, along a run of the reference through the network."""
    graph = job.model.graph
    trajectory = Trajectory(graph, batch=job.batch, seed=seed_of(job), precision=str(job.request["precision"]))
    cases = trajectory.forward_cases() if job.phase == "forward" else trajectory.training_cases()
    checks = {name: result.layers for name, result in found.items() if result.layers is not None}
    check_layers(cases, workers, checks, graph, on_progress)
    return trajectory


def begin(stack: ExitStack, job: Job, timeout_s: float) -> tuple[Launched, Conversation]:
    reason = broken_rule(job.request)
    if reason:
        raise JobFailed("unsupported", reason, stage="plan")
    worker = stack.enter_context(talking_to_worker(job, timeout_s=timeout_s))
    launched = Launched()
    start(worker, job, launched, no_progress)
    return launched, worker


@contextmanager
def failing_into(found: FrameworkSameness) -> Generator[None, None, None]:
    try:
        yield
    except JobFailed as failure:
        found.failure = f"{failure.outcome}: {failure.reason}"


def loaded(worker: Conversation, kind: str) -> dict[str, NDArray[Any]]:
    return {name: np.load(path, mmap_mode="r") for name, path in worker.dump(kind).items()}


def seed_of(job: Job) -> int:
    return int(job.request["seed"])
