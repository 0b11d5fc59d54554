"""One worker for many suites: it takes seconds to start, and may serve every job that would start it the same way.

What holds for a whole process decides which worker a job gets: its command, its variables, and the axes of threads,
CPUs, instructions, algorithm and engine. tests/conftest.py sends the suites of one framework to one process of pytest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from deepstone.checks import workers as workers_of_checks
from deepstone.runner.conversation import Conversation, JobFailed, talking_to_worker, variables_of
from deepstone.runner.job import Job

MOST_IDLE = 4  # workers; each has a framework in memory
LONGEST_S = 3600.0  # of a worker's life
WHOLE_PROCESS = ("threads", "inter_threads", "affinity", "isa", "algorithm", "engine", "allocator", "wait")
# A variable that keeps JAX off a GPU keeps it off nothing where there is none.
_NO_MATTER = ("PYTEST_", "DEEPSTONE_CACHE", *(() if Path("/dev/nvidiactl").exists() else ("JAX_PLATFORMS",)))

Key = tuple[object, ...]
Idle = tuple[Key, ExitStack, Conversation]

_idle: list[Idle] = []  # the last one was used last


@contextmanager
def shared_worker(job: Job, *, timeout_s: float) -> Iterator[Conversation]:
    """As `talking_to_worker`, but the worker may have served others before, and may serve others after."""
    key, stack, first = _take(job)
    talk = Conversation(first._worker, job, scratch=first._scratch, deadline_s=time.monotonic() + timeout_s)
    with ExitStack() as undo:
        undo.push(stack)  # after an error nobody knows in what state it is
        try:
            yield talk
        except JobFailed as failure:
            if failure.outcome == "unsupported":  # which a worker survives
                undo.pop_all()
                _give_back((key, stack, first))
            raise
        undo.pop_all()
    _give_back((key, stack, first))


@contextmanager
def checks_sharing_workers() -> Iterator[None]:
    """A check starts a worker for each precision and phase; here they are all the same one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers_of_checks, "talking_to_worker", shared_worker)
        yield


def end_shared_workers() -> None:
    while _idle:
        _idle.pop()[1].close()


def _take(job: Job) -> Idle:
    key = _key(job)
    for number, (other, _, _) in enumerate(_idle):
        if other == key:
            return _idle.pop(number)
    stack = ExitStack()
    return key, stack, stack.enter_context(talking_to_worker(job, timeout_s=LONGEST_S))


def _give_back(worker: Idle) -> None:
    _idle.append(worker)
    if not Path("/proc", str(worker[2]._worker.pid)).exists():  # it has crashed
        _idle.pop()[1].close()
    if len(_idle) > MOST_IDLE:
        _idle.pop(0)[1].close()


def _key(job: Job) -> Key:
    variables = {name: value for name, value in variables_of(job).items() if not name.startswith(_NO_MATTER)}
    axes = tuple(job.request[axis] for axis in WHOLE_PROCESS)
    return (*job.environment.command, tuple(sorted(variables.items())), *axes)
