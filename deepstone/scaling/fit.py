"""Fits time = alpha + beta x bytes to measured points, in one to three segments: as many as the points call for.

Libraries change their method with the size of a message (eager, rendezvous, pipelined), so one line seldom describes
all sizes. Errors are relative: a microsecond matters at 1 KiB and not at 64 MiB. A further segment must pay for its
three parameters (the Bayesian information criterion), measured against how well each point is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, combinations, pairwise
from typing import Final

import numpy as np
from msgspec import Struct

from deepstone.absent import Absent
from deepstone.results.comm import CommFit, CommPoint, FitSegment
from deepstone.results.quantity import Quantity

MOST_SEGMENTS: Final = 3
_FEWEST_POINTS: Final = 3  # of a segment: two always lie on a line
_PARAMETERS: Final = 3  # of a segment: alpha, beta, and where it begins
# Points are not known better than this, whatever their intervals say: those of one launch miss what launches differ by.
# Nor does one count for much less than another, or a fit on a busy machine would follow a few sizes only.
_LEAST_ERROR: Final = 0.03
_MOST_ERROR: Final = 0.15
_TWO_SIDED: Final = 1.96


class _Line(Struct, frozen=True, kw_only=True):
    """Through some neighbouring points; `errors` are relative."""

    alpha_s: float
    beta_s_per_byte: float
    errors: tuple[float, ...]


class _Known(Struct, frozen=True, kw_only=True):
    """A point that was measured, and how well it is known: the relative standard error."""

    bytes: int
    time_s: float
    error: float


def fit_points(points: Sequence[CommPoint]) -> CommFit | Absent:
    """Fit those that were measured, in the order of their sizes."""
    known = sorted((_known(point.bytes, time) for point in points if (time := point.seconds)), key=lambda p: p.bytes)
    if len(known) < _FEWEST_POINTS:
        return Absent(f"a fit needs {_FEWEST_POINTS} sizes; give more with size=")
    best = min(_arrangements(known), key=lambda found: _badness(known, found))
    errors = [error for line in best for error in line.errors]
    return CommFit(
        segments=_segments(known, best),
        residual=math.sqrt(sum(error**2 for error in errors) / len(errors)),
        worst=max(map(abs, errors)),
    )


def predict_s(fit: CommFit, size: int) -> float:
    """The time of one operation; beyond the sizes that were measured, by the nearest segment."""
    inside = [each for each in fit.segments if each.from_bytes <= size]
    segment = inside[-1] if inside else fit.segments[0]
    return segment.alpha_s + segment.beta_s_per_byte * size


def _known(size: int, time: Quantity) -> _Known:
    error = (time.high - time.low) / 2 / _TWO_SIDED / time.median if time.has_interval else 0.0
    return _Known(bytes=size, time_s=time.median, error=min(_MOST_ERROR, max(_LEAST_ERROR, error)))


def _arrangements(points: Sequence[_Known]) -> list[list[_Line]]:
    """Every way to cut the points into segments."""
    found: list[list[_Line]] = []
    for count in range(1, MOST_SEGMENTS + 1):
        for cuts in combinations(range(1, len(points)), count - 1):
            parts = [points[begin:end] for begin, end in pairwise([0, *cuts, len(points)])]
            if all(len(part) >= _FEWEST_POINTS for part in parts):
                found.append([_line(part) for part in parts])
    return found


def _line(points: Sequence[_Known]) -> _Line:
    """The line with the least relative errors, weighed by how well points are known. Neither number is negative."""
    sizes = np.array([point.bytes for point in points], dtype=np.float64)
    times = np.array([point.time_s for point in points])
    weights = 1 / times / np.array([point.error for point in points])
    candidates = [
        np.linalg.lstsq(np.stack([weights, weights * sizes], axis=1), weights * times, rcond=None)[0],
        np.array([np.average(times, weights=weights**2), 0.0]),
        np.array([0.0, float(np.sum(weights**2 * sizes * times) / np.sum((weights * sizes) ** 2))]),
    ]
    allowed = [each for each in candidates if min(each) >= 0]
    alpha_s, beta = min(allowed, key=lambda each: float(np.sum((weights * (each[0] + each[1] * sizes - times)) ** 2)))
    errors = tuple(float(error) for error in (alpha_s + beta * sizes) / times - 1)
    return _Line(alpha_s=float(alpha_s), beta_s_per_byte=float(beta), errors=errors)


def _badness(points: Sequence[_Known], lines: Sequence[_Line]) -> float:
    errors = [error for line in lines for error in line.errors]
    misfit = sum((error / point.error) ** 2 for error, point in zip(errors, points, strict=True))
    return misfit + (_PARAMETERS * len(lines) - 1) * math.log(len(points))


def _segments(points: Sequence[_Known], lines: Sequence[_Line]) -> list[FitSegment]:
    """Segments meet half-way between two sizes, as a logarithm counts."""
    ends = list(accumulate(len(line.errors) for line in lines))
    borders = [points[0].bytes]
    borders += [round(math.sqrt(points[end - 1].bytes * points[end].bytes)) for end in ends[:-1]]
    borders.append(points[-1].bytes)
    return [
        FitSegment(from_bytes=begin, to_bytes=end, alpha_s=line.alpha_s, beta_s_per_byte=line.beta_s_per_byte)
        for line, (begin, end) in zip(lines, pairwise(borders), strict=True)
    ]
