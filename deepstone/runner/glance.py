"""A few steps of a job, to decide whether a whole run of it is worth its time. Nothing of it is stored."""

from __future__ import annotations

from typing import Final

from deepstone.runner.conversation import JobFailed
from deepstone.runner.job import Job
from deepstone.runner.measurement import Launched, no_progress, start
from deepstone.runner.team import talking_to

_STEPS: Final = 2


def steps_at_a_glance(job: Job, *, timeout_s: float) -> float | None:
    """Return the time of the fastest of a few steps after the first; None if the job fails, as its run will tell."""
    if job.broken_rule:
        return None
    try:
        with talking_to(job, timeout_s=timeout_s) as conversation:
            start(conversation, job, Launched(), no_progress)
            step_s = min(conversation.block(samples=_STEPS).step_s)
            conversation.close()
            return step_s
    except JobFailed:
        return None
