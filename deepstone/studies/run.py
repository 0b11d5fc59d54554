"""Runs a study: one task after the other, storing each result and the state at once. After any interruption the next
call continues: a task with a stored run is not measured again.

    take the next ─▶ known to fail? no time? ─▶ claim it ─▶ stored meanwhile? ─▶ measure ─▶ store ─▶ write the state
                       pruned, left out         claimed by another: later

At the end, frameworks that ran the same network are checked for sameness; without it their speeds are shown but not
compared. Two studies on one store share the work: tasks that the other has claimed come last, when they are probably
done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Protocol

from deepstone.checks.comparable import comparable
from deepstone.durable import signals_blocked
from deepstone.errors import InternalError, MissingError
from deepstone.runner.assemble import now
from deepstone.runner.job import Job
from deepstone.runner.measurement import OnProgress
from deepstone.setups.axes import FAKE
from deepstone.store.store import Store
from deepstone.studies.durations import duration
from deepstone.studies.perform import Performed, perform
from deepstone.studies.state import State, TaskStatus
from deepstone.studies.study_run import Call, StudyRun

_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 5.0
_AT_ONCE: Final = 4  # workers that share one pass of the reference; more might not fit into memory


class StudyProgress(Protocol):
    """Progress callbacks. They are called only between blocks."""

    def begin(self, status: TaskStatus) -> None: ...
    def advance(self, stage: str, share: float) -> None: ...
    def end(self, status: TaskStatus, performed: Performed | None) -> None: ...
    def waiting(self, tasks: int) -> None: ...


def run_study(
    study_run: StudyRun,
    store: Store,
    call: Call,
    progress: StudyProgress,
    before: Callable[[Job], None] = lambda job: None,
) -> State:
    """Run until every task is settled or left out. `before` is called before each task. Raises StoreError if results
    cannot be stored any more, and whatever `before` raises; other errors become the status of their task."""
    return _Runner(study_run, store, call, progress, before).run()


class _Runner:
    def __init__(
        self, study_run: StudyRun, store: Store, call: Call, progress: StudyProgress, before: Callable[[Job], None]
    ) -> None:
        self._run = study_run
        self._store = store
        self._time_s = study_run.tasks_time_s
        self._progress = progress
        self._before = before
        self._begin_s = time.monotonic()

    def run(self) -> State:
        state = self._run.state
        try:
            self._write()
            self._wait_for([status for status in self._run.queue() if not self._do(status)])
            self._run.update_prune_reasons()
            state.sameness = self._sameness()
            state.finished_at = now()
        finally:
            with signals_blocked():
                self._write()
        return state

    def _sameness(self) -> dict[str, dict[str, bool]]:
        tasks = self._run.state.tasks
        timeout_s = max((status.task.effort.timeout_s for status in tasks), default=0.0)
        return _check_sameness(tasks, timeout_s=timeout_s, on_progress=self._progress.advance)

    def _do(self, status: TaskStatus) -> bool:
        """Settle a task, or leave it out; return False if another process has claimed it."""
        why = self._run.why_hopeless(status)
        if why:
            status.settle("pruned", why=why)
            return True
        if self._is_too_late(status):
            return True
        claim = self._store.claim_job(status.task.id)
        if claim is None:
            return False
        with claim:
            if not self._run.settled_by_others(status):
                self._measure(status)
        return True

    def _is_too_late(self, status: TaskStatus) -> bool:
        if self._time_s is None:
            return False
        left_s = max(0.0, self._time_s - (time.monotonic() - self._begin_s))
        if status.estimate_s <= left_s:
            return False
        needs, left, all = duration(status.estimate_s), duration(left_s), duration(self._time_s)
        status.settle("left out", why=f"it takes about {needs}, and {left} of {all} were left")
        return True

    def _measure(self, status: TaskStatus) -> None:
        self._progress.begin(status)
        self._before(status.task.job)
        start_s = time.monotonic()
        performed: Performed | None = None
        try:
            performed = perform(status.task, self._store, self._progress.advance)
        except (MissingError, InternalError) as error:
            status.settle("failed", why=str(error))
        with signals_blocked():
            if performed is not None:
                self._run.measured(status, performed, time.monotonic() - start_s)
            self._write()
        self._progress.end(status, performed)

    def _wait_for(self, claimed: Sequence[TaskStatus]) -> None:
        """Wait until the processes that claimed these tasks have stored them or ended."""
        wait_s = _FIRST_WAIT_S
        while claimed:
            self._progress.waiting(len(claimed))
            time.sleep(wait_s)
            still = [status for status in claimed if not self._do(status)]
            wait_s = _FIRST_WAIT_S if len(still) < len(claimed) else min(_LONGEST_WAIT_S, 2 * wait_s)
            claimed = still

    def _write(self) -> None:
        self._store.studies.write(self._run.state.kept())


def _check_sameness(
    tasks: Iterable[TaskStatus], *, timeout_s: float, on_progress: OnProgress
) -> dict[str, dict[str, bool]]:
    """Return sameness by network and framework, for networks that ran in several; each framework has its defaults."""
    shared = {network: jobs for network, jobs in _by_network(tasks).items() if len(jobs) > 1}
    count = sum(map(len, shared.values()))
    found: dict[str, dict[str, bool]] = {}
    done = 0
    for network, jobs in shared.items():
        for several in _some_at_once(jobs):
            checked = _checked(several, timeout_s, _part(on_progress, done, len(several), count))
            found.setdefault(network, {}).update(checked)
            done += len(several)
    return {network: checked for network, checked in found.items() if checked}


def _some_at_once(jobs: Mapping[str, Job]) -> Iterator[dict[str, Job]]:
    names = iter(jobs)
    while some := list(islice(names, _AT_ONCE)):
        yield {name: jobs[name] for name in some}


def _checked(jobs: Mapping[str, Job], timeout_s: float, on_progress: OnProgress) -> dict[str, bool]:
    try:
        return {
            name: check.ok for name, check in comparable(jobs, timeout_s=timeout_s, on_progress=on_progress).items()
        }
    except MissingError:  # an environment was removed meanwhile: check the others
        if len(jobs) == 1:
            return {}
        apart = [_checked({name: job}, timeout_s, on_progress) for name, job in jobs.items()]
        return {name: ok for each in apart for name, ok in each.items()}


def _by_network(tasks: Iterable[TaskStatus]) -> dict[str, dict[str, Job]]:
    """Return the first successful job of each framework, by network; the base comes before its variations."""
    found: dict[str, dict[str, Job]] = {}
    for status in sorted(tasks, key=lambda status: len(status.task.changed)):
        task = status.task
        job = task.job
        framework = _requested_framework(job)
        if (
            task.kind == "run"
            and status.state == "done"
            and job.environment.framework != FAKE
            and not job.model.graph.opaque
        ):
            found.setdefault(task.model, {}).setdefault(framework, job)
    return found


def _requested_framework(job: Job) -> str:
    """Return the framework as requested, with its version if one was: versions may differ in sameness."""
    requested = str(job.request["framework"])
    return requested if "@" in requested else job.environment.framework


def _part(on_progress: OnProgress, done: int, these: int, count: int) -> OnProgress:
    return lambda stage, share: on_progress(
        f"do the frameworks compute the same? {stage}", (done + share * these) / count
    )
