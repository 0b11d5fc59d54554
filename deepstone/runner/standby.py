"""Workers that have imported their framework before there is a job for them.

    worker 1   ── import ─ build ─ compile ─ steps ██████ ─ close
    worker 2      ── import ──▶ (sleeps in read) ────────────────▶ build ─ compile ─ steps ██████ ─ close
    worker 3      ── import ──▶ (sleeps in read) ────────────────────────────────────────────────▶ build ─ …
                              ▲
                              settle: nothing imports while a worker is timed

A torch process on a GPU imports for seven seconds and trains for three. Workers from here are processes of their own,
started like any other; only their import lies before, and while it goes on no device is touched. Several import at
once, so a search waits for one import where it would have waited for several.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final, Self, TypeAlias

from msgspec import Struct

from deepstone.errors import DeepstoneError, MissingError
from deepstone.runner.conversation import PROTOCOL, Started, chosen_cpus, command_of, started_worker, variables_of
from deepstone.runner.job import Job
from deepstone.runner.worker_process import ProtocolError, WorkerEnded
from deepstone.setups.axes import AUTO
from deepstone.setups.world import World
from deepstone.supervise import ProcessTimeout

_CORES_EACH: Final = 4  # imports that go on at once hold each other up, and the worker that builds meanwhile
_MOST: Final = 4
PATIENCE_S: Final = 30.0  # beyond what its job waited for by itself; what imports for longer hangs

_Key: TypeAlias = tuple[Sequence[str], Mapping[str, str], Sequence[int] | None]


class _Waiting(Struct, kw_only=True):
    """A worker that was asked to import. Leaving `stack` ends it."""

    key: _Key
    started: Started
    stack: ExitStack
    has_imported: bool = False


class Standby:
    """Use it as a context manager: leaving it ends the workers that wait. `most`: how many of a kind wait at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: list[_Waiting] = []
        self._hung: list[_Key] = []  # of workers whose import did not end; there are no more of these kinds

    @staticmethod
    def on(cores: int) -> Standby:
        """As many as a machine with so many cores imports at once without harm."""
        return Standby(max(1, min(_MOST, cores // _CORES_EACH)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        while self._waiting:
            self._waiting.pop().stack.close()

    def take(self, job: Job) -> tuple[Started, ExitStack] | None:
        """A worker for this job, whose caller now ends it; None if none waits. The last of a kind is replaced by
        others, which import while this one builds."""
        if not _can_wait(job) or (key := _key(job)) in self._hung:
            return None
        found: _Waiting | None = None
        while found is None and (waiting := next((each for each in self._waiting if each.key == key), None)):
            self._waiting.remove(waiting)
            found = waiting if self._answers(waiting, _deadline_s()) else None
        if key not in self._hung and not any(each.key == key for each in self._waiting):
            self._start(job, key)
        return None if found is None else (found.started, found.stack)

    def settle(self) -> None:
        """Wait until nobody imports. A worker that hangs is ended."""
        deadline_s = _deadline_s()
        for waiting in [each for each in self._waiting if not each.has_imported]:
            if not self._answers(waiting, deadline_s):
                self._waiting.remove(waiting)

    def _answers(self, waiting: _Waiting, deadline_s: float) -> bool:
        """Whether it has imported, and is still there; else it is ended. Something may have killed it while it
        waited."""
        reply: Mapping[str, object] = {}
        try:
            if waiting.has_imported:
                _ask(waiting.started, waiting.key)
            reply = waiting.started.worker.receive(deadline_s=deadline_s)
        except ProcessTimeout:
            if not waiting.has_imported:
                self._hung.append(waiting.key)
        except (ProtocolError, WorkerEnded, MissingError, OSError):
            pass  # what is wrong is told by the worker of a job
        waiting.has_imported = reply.get("event") == "preload"
        if not waiting.has_imported:
            waiting.stack.close()
        return waiting.has_imported

    def _start(self, job: Job, key: _Key) -> None:
        try:
            for _ in range(self._most):
                with ExitStack() as stack:
                    started = stack.enter_context(started_worker(job))
                    _ask(started, key)
                    self._waiting.append(_Waiting(key=key, started=started, stack=stack.pop_all()))
        except (DeepstoneError, WorkerEnded, ProcessTimeout, OSError):
            return  # what is wrong is told by the worker of a job


def _can_wait(job: Job) -> bool:
    """A limit of power would hold for the worker that is timed meanwhile, and several processes start together."""
    return (
        job.environment.language == "python"
        and job.request["power_limit"] == AUTO
        and not World.of(job.request).is_parallel
    )


def _key(job: Job) -> _Key:
    """What is decided when a worker starts."""
    return command_of(job), variables_of(job), chosen_cpus(job.request)


def _ask(started: Started, key: _Key) -> None:
    started.worker.send({"do": "preload", "protocol": PROTOCOL, "affinity": key[2]})


def _deadline_s() -> float:
    return time.monotonic() + PATIENCE_S
