"""Searches for the largest batch that fits: predict it from the peaks of small batches, try it, then bracket it.

small batches ─▶ line through their peaks ─▶ try where it meets the limit ─▶ try one more
                        ▲                               │ wrong: the new point
                        └───────────────────────────────┘ corrects the line
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepstone.absent import Absent
from deepstone.results.memory import LargestBatch, TriedBatch

NOT_TRIED = "not tried"


Attempt = Callable[[int, float], TriedBatch]  # arguments: a batch and its expected peak


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
