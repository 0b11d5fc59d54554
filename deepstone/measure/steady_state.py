"""Whether a series of samples is in a steady state: where warm-up ends, and whether what follows drifts.

Warm-up ends at the cut that makes the mean of what remains most certain (MSER, White 1997): dropping a slow start
lowers the variance of the rest more than it costs in samples. Samples are first limited from above, so that one late
hiccup does not pass for the end of a long warm-up.

A drift is found with Theil–Sen and Mann–Kendall, robust to outliers and to samples that resemble their neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

_FEWEST_FOR_WARMUP: Final = 6  # below this nothing can be said
# Of 100 samples with a hiccup at the 30th, 10 spreads would cut there 54 times in 100 and 5 do not once in 100; 3 would
# begin to leave true warm-up in.
_MOST_SPREADS: Final = 5

_FEWEST_FOR_TREND: Final = 8
_MOST_CHUNKS: Final = 20
# Beyond this so short a series cannot tell likeness from drift.
_MOST_LIKENESS: Final = 0.9
# What a straight line leaves over is rounding, whose pattern means nothing.
_ROUNDING: Final = 1e-12


def warmup_end(samples: Sequence[float]) -> int:
    """How many samples at the start are warm-up."""
    count = len(samples)
    if count < _FEWEST_FOR_WARMUP:
        return min(1, count - 1) if count > 1 else 0
    values = np.asarray(samples, dtype=np.float64)
    second_half = values[count // 2 :]
    middle = np.median(second_half)
    spread = np.median(np.abs(second_half - middle))
    limited = np.minimum(values, middle + _MOST_SPREADS * max(spread, 0.001 * middle))
    backwards = limited[::-1]
    kept = np.arange(1, count + 1)
    sums, squares = np.cumsum(backwards), np.cumsum(backwards**2)
    error = (squares - sums**2 / kept) / kept**2  # error[k - 1]: of the mean when the last k samples are kept
    candidates = error[::-1][: count // 2 + 1]
    return int(np.argmin(candidates))


def settled(samples: Sequence[float]) -> bool:
    """Whether warm-up ended well before the samples did."""
    return len(samples) >= _FEWEST_FOR_WARMUP and warmup_end(samples) < len(samples) // 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
    """A straight drift through a series."""

    drift_share: float
    """How much the series rose from its beginning to its end, as a share of its median; below zero if it fell."""
    p_value: float
    """How often a series without a trend would look as ordered as this one."""


def find_trend(series: ArrayLike) -> Trend | None:
    """The drift over the series (Theil–Sen) and its significance (Mann–Kendall); None when it is too short to tell.

    Neighbouring steps resemble each other, and the test would take their runs for a trend. So both are taken on the
    medians of up to 20 equal chunks, and what likeness is left between neighbours widens the test.
    """
    values = np.asarray(series, dtype=np.float64)
    middle = float(np.median(values)) if values.size else 0.0
    if values.size < _FEWEST_FOR_TREND or middle <= 0:
        return None
    chunks = np.array([np.median(chunk) for chunk in np.array_split(values, min(_MOST_CHUNKS, values.size))])
    first, second = np.triu_indices(chunks.size, k=1)
    differences = chunks[second] - chunks[first]
    slope_per_chunk = float(np.median(differences / (second - first)))
    left_over = chunks - slope_per_chunk * np.arange(chunks.size)
    variance = _order_variance(chunks) * _widening(left_over)
    return Trend(
        drift_share=slope_per_chunk * chunks.size / middle,
        p_value=_mann_kendall_p(float(np.sign(differences).sum()), variance),
    )


def _mann_kendall_p(order: float, variance: float) -> float:
    if variance <= 0:
        return 1.0
    # The sum of signs moves in steps of two, hence the one.
    z = max(abs(order) - 1, 0) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


def _order_variance(values: NDArray[np.float64]) -> float:
    """Of the sum of the signs of all differences, were the values independent; ties lower it."""
    n = values.size
    _, ties = np.unique(values, return_counts=True)
    return (n * (n - 1) * (2 * n + 5) - float(np.sum(ties * (ties - 1) * (2 * ties + 5)))) / 18


def _widening(left_over: NDArray[np.float64]) -> float:
    """By how much that variance grows when each value leans on the one before it (first-order autoregression)."""
    centred = left_over - left_over.mean()
    power = float(centred @ centred)
    if power <= centred.size * (_ROUNDING * float(np.abs(left_over).max())) ** 2:
        return 1.0
    likeness = min(max(float(centred[1:] @ centred[:-1]) / power, 0.0), _MOST_LIKENESS)
    return (1 + likeness) / (1 - likeness)
