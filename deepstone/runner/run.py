"""Runs one job from start to record. Whatever happens in the worker becomes an outcome; only what is missing raises."""

from __future__ import annotations

from deepstone.records.schema import Draft
from deepstone.runner.assemble import draft, now
from deepstone.runner.conversation import JobFailed, talking_to_worker
from deepstone.runner.job import Job
from deepstone.runner.launch import Effort, Launched, Tell, measure, silent


def run_job(job: Job, effort: Effort, tell: Tell = silent) -> Draft:
    """Measure a job in as many fresh processes as `effort.launches` says. Raises MissingError; all else is recorded."""
    started_at = now()
    launches: list[Launched] = []
    try:
        reason = job.broken_rule
        if reason:
            raise JobFailed("unsupported", reason, stage="plan")
        for number in range(effort.launches):
            launches.append(Launched())
            with talking_to_worker(job, timeout_s=effort.timeout_s) as conversation:
                measure(conversation, job, launches[-1], effort, _within(tell, number, effort.launches))
    except JobFailed as failure:
        return draft(job, launches, started_at=started_at, effort=effort, failure=failure)
    return draft(job, launches, started_at=started_at, effort=effort)


def _within(tell: Tell, number: int, count: int) -> Tell:
    """One launch's share of the whole."""
    return lambda stage, share: tell(stage, (number + share) / count)
