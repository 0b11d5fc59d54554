"""Runs one job from start to record. Any failure of the worker becomes an outcome; only MissingError is raised."""

from __future__ import annotations

from typing import Final

from deepstone.measure.effort import Effort
from deepstone.results.record import Draft
from deepstone.runner.assemble import draft, now
from deepstone.runner.conversation import JobFailed
from deepstone.runner.gpu_around import gpu_use_around
from deepstone.runner.job import Job
from deepstone.runner.measurement import Launched, OnProgress, measure, no_progress, start
from deepstone.runner.team import talking_to
from deepstone.runner.timeline import trace_events
from deepstone.trace.events import Event

_GLANCE_STEPS: Final = 2


def run_job(
    job: Job, effort: Effort, on_progress: OnProgress = no_progress, events: list[Event] | None = None
) -> Draft:
    """Measure a job in `effort.launches` fresh processes. Raises MissingError; other failures are recorded.

    `events` receives those of the traced steps of several processes, in the last launch.
    """
    started_at = now()
    launches: list[Launched] = []
    try:
        reason = job.broken_rule
        if reason:
            raise JobFailed("unsupported", reason, stage="plan")
        for number in range(effort.launches):
            with gpu_use_around(job) as gpu, talking_to(job, timeout_s=effort.timeout_s) as conversation:
                launches.append(Launched(gpu=gpu))
                measure(conversation, job, launches[-1], effort, _within(on_progress, number, effort.launches))
    except JobFailed as failure:
        return draft(job, launches, started_at=started_at, effort=effort, failure=failure)
    traced = launches[-1].traced
    if events is not None and traced is not None:
        events += trace_events(traced.steps, [rank.host for rank in launches[-1].ranks])
    return draft(job, launches, started_at=started_at, effort=effort)


def _within(on_progress: OnProgress, number: int, count: int) -> OnProgress:
    """Scale the progress of one launch to the whole run."""
    return lambda stage, share: on_progress(stage, (number + share) / count)


def steps_at_a_glance(job: Job, *, timeout_s: float) -> float | None:
    """Return the time of the fastest of a few steps after the first; None if the job fails, as its run will tell.

    It serves to decide whether a whole run is worth its time. Nothing of it is stored.
    """
    if job.broken_rule:
        return None
    try:
        with talking_to(job, timeout_s=timeout_s) as conversation:
            start(conversation, job, Launched(), no_progress)
            step_s = min(conversation.block(samples=_GLANCE_STEPS).step_s)
            conversation.close()
            return step_s
    except JobFailed:
        return None
