"""Checks a series of samples for a steady state: where warm-up ends, and whether the rest drifts.

Warm-up ends at the cut that makes the mean of the rest most certain (MSER, White 1997): dropping a slow start
lowers the variance of the rest more than it costs in samples. Samples are first limited from above, so that one late
hiccup is not mistaken for the end of a long warm-up.

A drift is found with Theil–Sen and Mann–Kendall, robust to outliers and to samples that resemble their neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from deepstone.measure.statistics import median_along

_FEWEST_FOR_WARMUP: Final = 6  # shorter series are not judged
# Of 100 samples with a hiccup at the 30th, 10 spreads would cut there 54 times in 100 and 5 do not once in 100; 3 would
# begin to leave true warm-up in.
_MOST_SPREADS: Final = 5

_FEWEST_FOR_TREND: Final = 8
_MOST_CHUNKS: Final = 20
# Above this autocorrelation a series this short cannot separate autocorrelation from drift.
_MOST_LIKENESS: Final = 0.9
# Below this, the residuals of the straight line are rounding errors, whose pattern means nothing.
_ROUNDING: Final = 1e-12


def warmup_end(samples: Sequence[float]) -> int:
    """Return how many samples at the start are warm-up."""
    count = len(samples)
    if count < _FEWEST_FOR_WARMUP:
        return min(1, count - 1) if count > 1 else 0
    values = np.asarray(samples, dtype=np.float64)
    second_half = values[count // 2 :]
    middle = median_along(second_half)
    spread = median_along(np.abs(second_half - middle))
    limited = np.minimum(values, middle + _MOST_SPREADS * max(spread, 0.001 * middle))
    backwards = limited[::-1]
    sizes = np.arange(1, count + 1)
    sums, squares = np.cumsum(backwards), np.cumsum(backwards**2)
    error = (squares - sums**2 / sizes) / sizes**2  # error[k - 1]: of the mean of the last k samples
    candidates = error[::-1][: count // 2 + 1]
    return int(np.argmin(candidates))


def settled(samples: Sequence[float]) -> bool:
    """Whether warm-up ended well before the samples did."""
    return len(samples) >= _FEWEST_FOR_WARMUP and warmup_end(samples) < len(samples) // 2


class Trend(Struct, frozen=True, kw_only=True):
    """A straight drift through a series."""

    drift_share: float
    """The rise of the series from start to end, as a share of its median; negative if it fell."""
    p_value: float
    """The probability that a series without a trend is as ordered as this one."""


def find_trend(series: ArrayLike) -> Trend | None:
    """Return the drift over the series (Theil–Sen) and its significance (Mann–Kendall); None if it is too short.

    Neighbouring steps are correlated, and the test could mistake their runs for a trend. So both use the medians of up
    to 20 equal chunks, and the remaining autocorrelation widens the test.
    """
    values = np.asarray(series, dtype=np.float64)
    middle = float(median_along(values)) if values.size else 0.0
    if values.size < _FEWEST_FOR_TREND or middle <= 0:
        return None
    chunks = np.array([median_along(chunk) for chunk in np.array_split(values, min(_MOST_CHUNKS, values.size))])
    first, second = np.triu_indices(chunks.size, k=1)
    differences = chunks[second] - chunks[first]
    slope_per_chunk = float(median_along(differences / (second - first)))
    left_over = chunks - slope_per_chunk * np.arange(chunks.size)
    variance = _order_variance(chunks) * _widening(left_over)
    return Trend(
        drift_share=slope_per_chunk * chunks.size / middle,
        p_value=_mann_kendall_p(float(np.sign(differences).sum()), variance),
    )


def _mann_kendall_p(order: float, variance: float) -> float:
    if variance <= 0:
        return 1.0
    # Continuity correction: the sum of signs changes in steps of two.
    z = max(abs(order) - 1, 0) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


def _order_variance(values: NDArray[np.float64]) -> float:
    """Return the variance of the sum of the signs of all differences for independent values; ties lower it."""
    n = values.size
    ordered = np.sort(values)  # numpy.unique imports masked arrays
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    ties = np.diff(ends, prepend=-1)
    return (n * (n - 1) * (2 * n + 5) - float(np.sum(ties * (ties - 1) * (2 * ties + 5)))) / 18


def _widening(residuals: NDArray[np.float64]) -> float:
    """Return the factor by which first-order autoregression increases that variance."""
    centred = residuals - residuals.mean()
    power = float(centred @ centred)
    if power <= centred.size * (_ROUNDING * float(np.abs(residuals).max())) ** 2:
        return 1.0
    likeness = min(max(float(centred[1:] @ centred[:-1]) / power, 0.0), _MOST_LIKENESS)
    return (1 + likeness) / (1 - likeness)
