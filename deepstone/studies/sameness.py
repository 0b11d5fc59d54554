"""Whether the frameworks of a study compute the same: without that their speeds are told, and not compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from deepstone.checks.cache import comparable
from deepstone.errors import MissingError
from deepstone.runner.job import Job
from deepstone.runner.launch import Tell
from deepstone.setups.axes import FAKE
from deepstone.studies.state import Progress

_AT_ONCE: Final = 4  # workers that share one pass of the reference; all of a long list might not fit into memory


def check_sameness(tasks: Iterable[Progress], *, timeout_s: float, tell: Tell) -> dict[str, dict[str, bool]]:
    """By network and framework, for networks that ran in more than one; each framework as it runs by itself."""
    wanted = {network: jobs for network, jobs in _by_network(tasks).items() if len(jobs) > 1}
    count = sum(map(len, wanted.values()))
    found: dict[str, dict[str, bool]] = {}
    done = 0
    for network, jobs in wanted.items():
        for several in _some_at_once(jobs):
            checked = _checked(several, timeout_s, _part(tell, done, len(several), count))
            found.setdefault(network, {}).update(checked)
            done += len(several)
    return {network: checked for network, checked in found.items() if checked}


def _some_at_once(jobs: Mapping[str, Job]) -> Iterator[dict[str, Job]]:
    names = iter(jobs)
    while some := list(islice(names, _AT_ONCE)):
        yield {name: jobs[name] for name in some}


def _checked(jobs: Mapping[str, Job], timeout_s: float, tell: Tell) -> dict[str, bool]:
    try:
        return {name: check.ok for name, check in comparable(jobs, timeout_s=timeout_s, tell=tell).items()}
    except MissingError:  # one is gone since it was measured: then nothing is known of it, and the others are checked
        if len(jobs) == 1:
            return {}
        apart = [_checked({name: job}, timeout_s, tell) for name, job in jobs.items()]
        return {name: ok for each in apart for name, ok in each.items()}


def _by_network(tasks: Iterable[Progress]) -> dict[str, dict[str, Job]]:
    """The first job of each framework that went well, by network; that of the base comes before its variations."""
    found: dict[str, dict[str, Job]] = {}
    for progress in sorted(tasks, key=lambda progress: len(progress.task.changed)):
        task = progress.task
        job = task.job
        framework = _asked(job)
        if (
            task.kind == "run"
            and progress.state == "done"
            and job.environment.framework != FAKE
            and not job.model.graph.opaque
        ):
            found.setdefault(task.model, {}).setdefault(framework, job)
    return found


def _asked(job: Job) -> str:
    """As one types it: a version that was asked for by name proves nothing about another."""
    asked = str(job.request["framework"])
    return asked if "@" in asked else job.environment.framework


def _part(tell: Tell, done: int, these: int, count: int) -> Tell:
    return lambda stage, share: tell(f"do the frameworks compute the same? {stage}", (done + share * these) / count)
