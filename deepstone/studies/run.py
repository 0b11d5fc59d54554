"""Runs a study: one task after the other, each stored at once, the state written after each. Whatever ends it, the
next call goes on: what has a run in the store is not measured again.

    take the next ─▶ known to fail? no time? ─▶ claim it ─▶ stored meanwhile? ─▶ measure ─▶ store ─▶ write the state
                       pruned, left out         taken: later

In the end, frameworks that ran the same network are checked to compute the same.
Two studies on one store share the work: what the other has claimed comes at the end, when it is most likely done.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, Protocol

from deepstone.environments.undisturbed import undisturbed
from deepstone.errors import MissingError
from deepstone.runner.assemble import now
from deepstone.store.store import Store
from deepstone.studies.course import Call, Course
from deepstone.studies.durations import duration
from deepstone.studies.perform import Performed, perform
from deepstone.studies.sameness import check_sameness
from deepstone.studies.state import Progress, State

_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 5.0


class Watch(Protocol):
    """Who is told how it goes. Called between blocks of measuring only."""

    def begin(self, progress: Progress) -> None: ...
    def tell(self, stage: str, share: float) -> None: ...
    def end(self, progress: Progress, performed: Performed | None) -> None: ...
    def waiting(self, tasks: int) -> None: ...


def run_study(course: Course, store: Store, call: Call, watch: Watch) -> State:
    """Ends with every task settled or left out. StoreError when nothing can be kept any more; whatever else happens to
    a task stays with that task."""
    return _StudyRun(course, store, call, watch).run()


class _StudyRun:
    def __init__(self, course: Course, store: Store, call: Call, watch: Watch) -> None:
        self._course = course
        self._store = store
        self._time_s = call.time_s
        self._watch = watch
        self._begin_s = time.monotonic()

    def run(self) -> State:
        state = self._course.state
        try:
            self._write()
            self._wait_for([progress for progress in self._course.queue() if not self._do(progress)])
            self._course.tell_why_pruned()
            state.sameness = self._sameness()
            state.finished_at = now()
        finally:
            with undisturbed():
                self._write()
        return state

    def _sameness(self) -> dict[str, dict[str, bool]]:
        tasks = self._course.state.tasks
        timeout_s = max((progress.task.effort.timeout_s for progress in tasks), default=0.0)
        return check_sameness(tasks, timeout_s=timeout_s, tell=self._watch.tell)

    def _do(self, progress: Progress) -> bool:
        """Settles a task, or leaves it out; False when another process has claimed it."""
        why = self._course.why_hopeless(progress)
        if why:
            progress.settle("pruned", why=why)
            return True
        if self._is_too_late(progress):
            return True
        claim = self._store.claim_job(progress.task.id)
        if claim is None:
            return False
        with claim:
            if not self._course.settled_by_others(progress):
                self._measure(progress)
        return True

    def _is_too_late(self, progress: Progress) -> bool:
        if self._time_s is None:
            return False
        left_s = max(0.0, self._time_s - (time.monotonic() - self._begin_s))
        if progress.estimate_s <= left_s:
            return False
        needs, left, all = duration(progress.estimate_s), duration(left_s), duration(self._time_s)
        progress.settle("left out", why=f"it takes about {needs}, and {left} of {all} were left")
        return True

    def _measure(self, progress: Progress) -> None:
        self._watch.begin(progress)
        start_s = time.monotonic()
        performed: Performed | None = None
        try:
            performed = perform(progress.task, self._store, self._watch.tell)
        except MissingError as error:
            progress.settle("failed", why=str(error))
        with undisturbed():
            if performed is not None:
                self._course.measured(progress, performed, time.monotonic() - start_s)
            self._write()
        self._watch.end(progress, performed)

    def _wait_for(self, claimed: Sequence[Progress]) -> None:
        """Until those who hold them have stored them, or have gone."""
        wait_s = _FIRST_WAIT_S
        while claimed:
            self._watch.waiting(len(claimed))
            time.sleep(wait_s)
            still = [progress for progress in claimed if not self._do(progress)]
            wait_s = _FIRST_WAIT_S if len(still) < len(claimed) else min(_LONGEST_WAIT_S, 2 * wait_s)
            claimed = still

    def _write(self) -> None:
        self._store.studies.write(self._course.state.to_json())
