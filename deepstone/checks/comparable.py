"""May speeds be compared? What is asked before they are: every layer alone, and one whole step as it is measured.

Both come from one pass of the reference, so this costs a fraction of `verify`. Errors that single layers do not show,
because they arise from how one layer hands its result to the next, show in the whole step.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from deepstone.absent import Absent
from deepstone.backends.registry import YARDSTICK
from deepstone.checks.agreement import Distance
from deepstone.checks.as_measured import distance_of, judge_as_measured
from deepstone.checks.layers import LayerCheck
from deepstone.checks.sameness import FrameworkSameness
from deepstone.checks.whole_step import ReferenceSteps, reference_steps
from deepstone.checks.workers import check_every_layer, failing_into, seed_of, start_all
from deepstone.environments.find import find_environment
from deepstone.errors import MissingError
from deepstone.runner.job import Job
from deepstone.runner.launch import Tell, silent
from deepstone.setups.axes import AXES


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparable:
    """What was found of one framework."""

    layers: LayerCheck
    whole_step: Distance | Absent
    seeds: int = 1  # with which the whole step was tried; one within its bound is enough

    @property
    def failure(self) -> str:
        return self.layers.failure

    @property
    def ok(self) -> bool:
        return self.layers.ok and (isinstance(self.whole_step, Absent) or self.whole_step.ok)

    def why_not(self) -> str:
        """One clause about what is wrong."""
        if not self.layers.ok:
            return self.layers.why_not()
        return f"every layer alone agrees, but not the whole step: {self.whole_step}"

    def to_json(self) -> dict[str, Any]:
        return {**self.layers.to_json(), "ok": self.ok, "whole_step": self.whole_step.to_json(), "seeds": self.seeds}


def check_comparable(jobs: Mapping[str, Job], *, timeout_s: float, tell: Tell = silent) -> dict[str, Comparable]:
    """The jobs share model, batch, phase, precision and seed. Raises MissingError."""
    found = {name: FrameworkSameness() for name in jobs}
    job, distances = next(iter(jobs.values())), dict[str, Distance]()
    with ExitStack() as stack:
        workers = start_all(stack, jobs, found, timeout_s, tell)
        trajectory = check_every_layer(workers, job, found, tell)
        steps = ReferenceSteps(losses=[], gradients=trajectory.gradients)
        if job.phase == "forward":
            steps = reference_steps(job.model.graph, batch=job.batch, seed=seed_of(job), phase=job.phase, tell=tell)
        for name, worker in workers.items():
            layers = found[name].layers
            if layers is not None and layers.ok:
                with failing_into(found[name]):
                    distances[name] = distance_of(worker, steps, job)
    judge_as_measured(jobs, _yardstick(job), distances, steps, found, timeout_s, tell)
    return {name: _comparable(result) for name, result in found.items()}


def _yardstick(job: Job) -> Job | None:
    """torch with nothing asked for but the precision and where it runs."""
    kept = ("batch", "phase", "seed", "precision", "device")
    plain = {name: job.request[name] if name in kept else axis.default for name, axis in AXES.items()}
    try:
        return replace(job, environment=find_environment(YARDSTICK), request={**plain, "framework": YARDSTICK})
    except MissingError:
        return None


def _comparable(found: FrameworkSameness) -> Comparable:
    layers = found.layers or LayerCheck(precision="not started")
    layers.failure = layers.failure or found.failure
    return Comparable(layers=layers, whole_step=found.measured, seeds=max(1, len(found.seeds)))
