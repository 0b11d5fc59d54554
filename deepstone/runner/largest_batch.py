"""Finds the largest batch that fits into a device's memory, or into the user's limit, by running it.

On the host, a batch that is too large could bring the machine down. So a batch is not tried if it is expected to need
more than a share of the free memory. On a GPU, running out of memory affects only the worker.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import psutil

from deepstone.absent import Absent
from deepstone.errors import UsageError
from deepstone.hardware.cgroup import memory_limit_bytes
from deepstone.results.memory import LargestBatch, TriedBatch
from deepstone.runner.batch_search import NOT_TRIED, largest_batch
from deepstone.runner.conversation import JobFailed
from deepstone.runner.job import Job
from deepstone.runner.measurement import OnProgress, no_progress
from deepstone.runner.memory import MemoryFound, find_memory
from deepstone.runner.replies import MemoryPeak
from deepstone.setups.axes import MOST_BATCH
from deepstone.units import bytes_

SAFE_SHARE = 0.9  # of the host's free memory
# The peak of a process on the host varies by a few percent from run to run, because of its allocator.
HOST_RESOLUTION = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """`what` describes the origin of the limit. A try may be expected to need up to `safe_bytes`; None: any amount."""

    bytes: int
    what: str
    safe_bytes: int | None


def find_largest_batch(
    job: Job,
    found: MemoryFound | JobFailed,
    *,
    given_bytes: int | None,
    timeout_s: float,
    on_progress: OnProgress = no_progress,
) -> LargestBatch:
    """`found` is the result of the job with its own batch. Raises UsageError, JobFailed."""
    failed: list[TriedBatch] = []
    while isinstance(found, JobFailed):
        if found.outcome != "oom":
            raise found
        failed.append(_failed(job.batch, found))
        if job.batch == 1:
            return _nothing_fits(failed, found)
        job = _with_batch(job, job.batch // 2)
        on_progress(f"trying batch {job.batch}", 0.0)
        found = _find(job, timeout_s)
    limit = _limit(job, found, given_bytes)
    tries = _Tries(job, limit, timeout_s, on_progress)
    own = _judged(job.batch, found.peak, limit)
    sample_bytes = _sample_bytes(job)
    first = [*failed, own]
    second = 2 * job.batch if own.fits else job.batch // 2
    if second not in (0, *(each.batch for each in failed)):
        first.append(tries.attempt(second, _at_least(own, second, sample_bytes)))
    return largest_batch(
        tries.attempt,
        first=first,
        limit_bytes=limit.bytes,
        limit=limit.what,
        sample_bytes=sample_bytes,
        most=MOST_BATCH,
        resolution=0.0 if found.launched.on_gpu else HOST_RESOLUTION,
    )


def _sample_bytes(job: Job) -> int:
    """Return the analytic need of one more sample; 0 if it is not known."""
    one, two = (_with_batch(job, batch).need_bytes for batch in (1, 2))
    return 0 if isinstance(one, Absent) or isinstance(two, Absent) else two - one


def _at_least(own: TriedBatch, batch: int, sample_bytes: int) -> float:
    known_bytes = 0 if isinstance(own.peak_bytes, Absent) else own.peak_bytes
    return known_bytes + sample_bytes * (batch - own.batch)


def _nothing_fits(failed: list[TriedBatch], last: JobFailed) -> LargestBatch:
    return LargestBatch(
        predicted=0,
        confirmed=0,
        too_large=1,
        limit_bytes=Absent(f"not even one sample fits: {last.reason}"),
        tried=failed,
        limit="what the device has",
    )


def _find(job: Job, timeout_s: float) -> MemoryFound | JobFailed:
    try:
        return find_memory(job, timeout_s=timeout_s, by_layer=False)
    except JobFailed as failure:
        return failure


def _failed(batch: int, failure: JobFailed) -> TriedBatch:
    peak_bytes = Absent("the run did not end")
    return TriedBatch(batch=batch, outcome=failure.outcome, peak_bytes=peak_bytes, reason=failure.reason)


class _Tries:
    """Runs the job with one batch after the other, each in a fresh worker."""

    def __init__(self, job: Job, limit: Limit, timeout_s: float, on_progress: OnProgress) -> None:
        self._job = job
        self._limit = limit
        self._timeout_s = timeout_s
        self._on_progress = on_progress
        self._count = 0

    def attempt(self, batch: int, expected_bytes: float) -> TriedBatch:
        safe_bytes = self._limit.safe_bytes
        if safe_bytes is not None and expected_bytes > safe_bytes:
            reason = f"would need about {bytes_(expected_bytes)}, and {bytes_(safe_bytes)} is all that may be tried"
            return TriedBatch(batch=batch, outcome=NOT_TRIED, peak_bytes=Absent(reason), reason=reason)
        self._count += 1
        self._on_progress(f"trying batch {batch}", min(0.95, self._count / 6))
        found = _find(_with_batch(self._job, batch), self._timeout_s)
        if isinstance(found, JobFailed):
            return _failed(batch, found)
        return _judged(batch, found.peak, self._limit)


def _judged(batch: int, peak: MemoryPeak, limit: Limit) -> TriedBatch:
    whole_bytes = peak.whole_bytes
    if not isinstance(whole_bytes, Absent) and whole_bytes > limit.bytes:
        return TriedBatch(batch=batch, outcome="oom", peak_bytes=whole_bytes, reason=f"its peak is over {limit.what}")
    return TriedBatch(batch=batch, outcome="ok", peak_bytes=whole_bytes, reason="")


def _limit(job: Job, found: MemoryFound, given_bytes: int | None) -> Limit:
    given = None if given_bytes is None else f"the {bytes_(given_bytes)} of --memory"
    if found.launched.on_gpu:
        device_bytes = _device_bytes(job, found)
        if given_bytes is not None and given is not None:
            return Limit(bytes=given_bytes, what=given, safe_bytes=None)
        return Limit(bytes=device_bytes, what=f"the {bytes_(device_bytes)} that a process can have", safe_bytes=None)
    free_bytes = _host_free_bytes()
    safe_bytes = int(SAFE_SHARE * free_bytes)
    if given_bytes is not None and given is not None:
        if given_bytes > safe_bytes:
            raise UsageError(
                f"--memory {bytes_(given_bytes)}: this machine has {bytes_(free_bytes)} free, and more than "
                f"{SAFE_SHARE:.0%} of it is not tried; give at most {bytes_(safe_bytes)}"
            )
        return Limit(bytes=given_bytes, what=given, safe_bytes=safe_bytes)
    what = f"{SAFE_SHARE:.0%} of the {bytes_(free_bytes)} that are free; more is not tried"
    return Limit(bytes=safe_bytes, what=what, safe_bytes=safe_bytes)


def _host_free_bytes() -> int:
    free_bytes, group_bytes = psutil.virtual_memory().available, memory_limit_bytes()
    return free_bytes if isinstance(group_bytes, Absent) else min(free_bytes, group_bytes)


def _device_bytes(job: Job, found: MemoryFound) -> int:
    available = found.peak.available_bytes
    if isinstance(available, int):
        return available
    boards = job.machine.gpu_memory_bytes
    if not boards:
        raise UsageError("how much memory the device has is not known; give it with --memory")
    return min(boards)


def _with_batch(job: Job, batch: int) -> Job:
    return replace(job, request={**job.request, "batch": batch})
