"""Whether the frameworks of a study compute the same: without that their speeds are told, and not compared."""

from __future__ import annotations

from collections.abc import Iterable

from deepstone.checks.cache import layer_checks
from deepstone.errors import MissingError
from deepstone.runner.job import Job
from deepstone.runner.launch import Tell
from deepstone.setups.axes import FAKE
from deepstone.studies.state import Progress


def check_sameness(tasks: Iterable[Progress], *, timeout_s: float, tell: Tell) -> dict[str, dict[str, bool]]:
    """By network and framework, for networks that ran in more than one; each framework as it runs by itself."""
    wanted = {
        name: job
        for jobs in _by_network(tasks).values()
        if len({framework for framework, _ in jobs}) > 1
        for name, job in jobs.items()
    }
    found: dict[str, dict[str, bool]] = {}
    for number, ((framework, network), job) in enumerate(wanted.items()):
        try:
            checks = layer_checks({framework: job}, timeout_s=timeout_s, tell=_part(tell, number, len(wanted)))
        except MissingError:  # gone since it was measured: then nothing is known of it
            continue
        found.setdefault(network, {})[framework] = checks[framework].ok
    return found


def _by_network(tasks: Iterable[Progress]) -> dict[str, dict[tuple[str, str], Job]]:
    """The first job of each framework that went well, by network; that of the base comes before its variations."""
    found: dict[str, dict[tuple[str, str], Job]] = {}
    for progress in sorted(tasks, key=lambda progress: len(progress.task.changed)):
        task = progress.task
        job = task.job
        framework = job.environment.framework
        if task.kind == "run" and progress.state == "done" and framework != FAKE and not job.model.graph.opaque:
            found.setdefault(task.model, {}).setdefault((framework, task.model), job)
    return found


def _part(tell: Tell, number: int, count: int) -> Tell:
    return lambda stage, share: tell(f"do the frameworks compute the same? {stage}", (number + share) / count)
