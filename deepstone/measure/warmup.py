"""Where warm-up ends, read off the samples.

The cut is the one that makes the mean of what remains most certain (MSER, White 1997): dropping a slow start lowers
the variance of the rest more than it costs in samples. Samples are first limited from above, so that one late
hiccup does not pass for the end of a long warm-up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_FEWEST = 6  # below this nothing can be said
# Of 100 samples with a hiccup at the 30th, 10 spreads would cut there 54 times in 100 and 5 do not once in 100; 3 would
# begin to leave true warm-up in.
_MOST_SPREADS = 5


def warmup_end(samples: Sequence[float]) -> int:
    """How many samples at the start are warm-up."""
    count = len(samples)
    if count < _FEWEST:
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
    return len(samples) >= _FEWEST and warmup_end(samples) < len(samples) // 2
