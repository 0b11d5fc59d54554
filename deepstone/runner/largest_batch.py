"""Finds the largest batch that fits into a device's memory, or into the user's limit, by running it.

small batches ─▶ line through their peaks ─▶ try where it meets the limit ─▶ try one more
                        ▲                               │ wrong: the new point
                        └───────────────────────────────┘ corrects the line

On the host, a batch that is too large could bring the machine down. So a batch is not tried if it is expected to need
more than a share of the free memory. On a GPU, running out of memory affects only the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psutil
from msgspec import Struct
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.errors import UsageError
from deepstone.hardware.cgroup import memory_limit_bytes
from deepstone.results.memory import LargestBatch, TriedBatch
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
NOT_TRIED = "not tried"

Attempt = Callable[[int, float], TriedBatch]  # arguments: a batch and its expected peak


class Limit(Struct, frozen=True, kw_only=True):
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


def largest_batch(
    attempt: Attempt,
    *,
    first: Sequence[TriedBatch],
    limit_bytes: int,
    limit: str = "",
    sample_bytes: int,
    most: int,
    resolution: float = 0.0,
    most_tries: int = 12,
) -> LargestBatch:
    """`first`: batches already tried, one of them with a known peak. `sample_bytes`: the analytic need of a sample.

    The search ends when one batch fits and the next larger one does not. `resolution` is the allowed gap between the
    two, as a share, for devices on which the peak of one batch varies.
    """
    tried = list(first)
    predicted = min(most, max(1, _where_line_meets(tried, limit_bytes, sample_bytes)))
    doublings = 0
    for _ in range(most_tries):
        fitting, failing = _bracket(tried, most)
        finest = max(1, int(resolution * fitting))
        if failing - fitting <= finest:
            break
        batch, middle = _where_line_meets(tried, limit_bytes, sample_bytes), (fitting + failing) // 2
        if not fitting < batch < failing:  # the line gives no new batch: take ever larger strides from the end
            stride = finest << doublings
            batch = min(fitting + stride, middle) if batch <= fitting else max(failing - stride, middle)
            doublings += 1
        tried.append(attempt(batch, _expected(tried, batch, sample_bytes)))
    fitting, _ = _bracket(tried, most)
    run = [each.batch for each in tried if not each.fits and each.outcome != NOT_TRIED]
    return LargestBatch(
        predicted=predicted,
        confirmed=fitting,
        too_large=min(run) if run else Absent("none that was run was too large"),
        limit_bytes=limit_bytes,
        tried=tried,
        limit=limit,
    )


def _bracket(tried: Sequence[TriedBatch], most: int) -> tuple[int, int]:
    """Return the largest batch that fits and the smallest that does not."""
    failing = min((each.batch for each in tried if not each.fits), default=most + 1)
    return max((each.batch for each in tried if each.fits and each.batch < failing), default=0), failing


def _line(tried: Sequence[TriedBatch], sample_bytes: int, near_bytes: float) -> tuple[float, float]:
    """Return slope and intercept of the line through the two known peaks nearest to a size."""
    points = {each.batch: each.peak_bytes for each in tried if not isinstance(each.peak_bytes, Absent)}
    nearest = sorted(points, key=lambda batch: (abs(points[batch] - near_bytes), batch))[:2]
    low, high = min(nearest), max(nearest)
    slope = (points[high] - points[low]) / (high - low) if high > low else 0.0
    # The peaks of two small batches may differ by less than the process allocated during the build.
    slope = slope if slope > sample_bytes / 2 else max(float(sample_bytes), 1.0)
    return slope, points[high] - slope * high


def _where_line_meets(tried: Sequence[TriedBatch], limit_bytes: int, sample_bytes: int) -> int:
    slope, level = _line(tried, sample_bytes, limit_bytes)
    return int((limit_bytes - level) // slope)


def _expected(tried: Sequence[TriedBatch], batch: int, sample_bytes: int) -> float:
    slope, level = _line(tried, sample_bytes, float("inf"))
    return level + max(slope, sample_bytes) * batch
