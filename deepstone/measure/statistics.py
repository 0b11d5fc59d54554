"""Medians with intervals, from samples with levels: launches contain blocks, blocks contain steps.

Steps within a block resemble each other, and so do blocks within a launch. The bootstrap therefore resamples from the
top: launches (when there are several), then blocks, then steps. Few units at the top make a percentile interval too
narrow, so its tails are widened as Student's t would ("expanded percentile", Hesterberg 2015).

One sample has no interval, since every draw equals that sample. From two samples on, draws differ, and the interval
reaches at most from the smallest sample to the largest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from deepstone.results.quantity import Quantity

Array: TypeAlias = NDArray[np.float64]
Block: TypeAlias = Sequence[float]
Launch: TypeAlias = Sequence[Block]

CONFIDENCE = 0.95
# The bootstrap of a median never reaches beyond the smallest and the largest sample. These contain the true median
# in 1 - 2**(1 - n) of all cases: 94 % with five samples, 97 % with six. With fewer, an interval covers less.
FEWEST_FOR_CONFIDENCE = 6
REPLICATES = 2000
_LARGEST_LOG = 300.0  # of a number that a float can represent, with room for the ratio of two
_NEARLY_NORMAL = 2000  # degrees of freedom
_DRAWS_AT_MOST = 4_000_000  # per bootstrap; beyond it, fewer steps are drawn per block, which only widens the interval
_DRAWS_AT_ONCE = 2**17  # that fit in the cache of a core


def median_along(values: ArrayLike, axis: int = -1) -> Array:
    """Return what `numpy.median` does, without masked arrays, whose import takes as much time as a bootstrap."""
    array = np.asarray(values, dtype=np.float64)
    half, is_odd = divmod(array.shape[axis], 2)
    ordered = np.moveaxis(np.partition(array, [max(0, half - 1), half, -1], axis=axis), axis, -1)
    middle: Array = (ordered[..., half if is_odd else half - 1] + ordered[..., half]) / 2
    last: Array = ordered[..., -1]  # to which NaN is sorted
    return np.where(np.isnan(last), last, middle)


def quantile_of(ordered: Array, share: float) -> float:
    """Return what `numpy.quantile` does, of values in order, without masked arrays."""
    place = share * (len(ordered) - 1)
    before = math.floor(place)
    low, high = float(ordered[before]), float(ordered[min(before + 1, len(ordered) - 1)])
    beyond = place - before
    return low + (high - low) * beyond if beyond < 0.5 else high - (high - low) * (1 - beyond)


def why_no_interval(parts: Sequence[Quantity]) -> str:
    """Return why a result of all these parts has no interval: one part has none. Otherwise empty."""
    return next((part.no_interval for part in parts if not part.has_interval), "")


def sum_of_bounds(parts: Sequence[Quantity]) -> Quantity:
    """Add quantities whose errors may depend on each other: the bounds are the sums of all ends."""
    return Quantity.of(
        median=math.fsum(part.median for part in parts),
        low=math.fsum(part.low for part in parts),
        high=math.fsum(part.high for part in parts),
        n=min((part.n for part in parts), default=0),
        no_interval=why_no_interval(parts),
    )


def difference_of_bounds(larger: Quantity, smaller: Quantity) -> Quantity:
    """Subtract as `sum_of_bounds` adds. The result may be negative."""
    median, n = larger.median - smaller.median, min(larger.n, smaller.n)
    why = why_no_interval([larger, smaller])
    if why:
        return Quantity.without_interval(median, n=n, why=why)
    return Quantity.of(median=median, low=larger.low - smaller.high, high=larger.high - smaller.low, n=n)


def across_launches(launches: Sequence[Quantity]) -> Quantity:
    """Join one quantity of every launch: the median of their medians, between the outermost ends of all intervals."""
    if len(launches) == 1:
        return launches[0]
    return Quantity.of(
        median=float(median_along([launch.median for launch in launches])),
        low=min(launch.low for launch in launches),
        high=max(launch.high for launch in launches),
        n=sum(launch.n for launch in launches),
        no_interval=why_no_interval(launches),
    )


def ratio_of_bounds(above: Quantity, below: Quantity) -> Quantity:
    """Divide two positive quantities whose errors may depend on each other: bounds from the ends of both."""
    median, n = above.median / below.median, min(above.n, below.n)
    why = why_no_interval([above, below])
    if why:
        return Quantity.without_interval(median, n=n, why=why)
    high = above.high / below.low if below.low > 0 else math.inf
    return Quantity.of(median=median, low=above.low / below.high, high=high, n=n)


def median_of(launches: Sequence[Launch], *, seed: int = 0, replicates: int = REPLICATES) -> Quantity:
    """Return the median of all steps, with the interval that the levels of the samples allow."""
    flat = flat_steps(launches)
    if len(flat) == 1:
        return Quantity.without_interval(float(flat[0]))
    draws = _resampled_medians(launches, np.random.default_rng(seed), replicates)
    low, high = _tails(draws, _top_units(launches))
    median = float(median_along(flat))
    return Quantity.of(median=median, low=min(low, median), high=max(high, median), n=len(flat))


def rough_relative_half_width(blocks: Launch) -> float:
    """Estimate the result of `median_of` from the spread of the blocks' medians, in a thousandth of the time."""
    medians = np.array([median_along(block) for block in blocks])
    middle = float(median_along(medians))
    if len(medians) < 2 or middle == 0:
        return math.inf
    of_median = math.sqrt(math.pi / 2)  # a median is that much less certain than a mean
    return 1.96 * of_median * float(np.std(medians, ddof=1)) / math.sqrt(len(medians)) / abs(middle)


def difference_of_medians(larger: Launch, smaller: Launch, *, seed: int = 0) -> Quantity:
    """Return median(larger) - median(smaller) of interleaved blocks. A negative value stays negative."""
    value = float(median_along(flat_steps([larger])) - median_along(flat_steps([smaller])))
    n = min(len(flat_steps([larger])), len(flat_steps([smaller])))
    if n == 1:
        return Quantity.without_interval(value)
    random = np.random.default_rng(seed)
    draws = _resampled_medians([larger], random, REPLICATES) - _resampled_medians([smaller], random, REPLICATES)
    low, high = _tails(draws, min(len(larger), len(smaller)))
    return Quantity.of(median=value, low=min(low, value), high=max(high, value), n=n)


def ratio_of_pairs(pairs: Sequence[tuple[Launch, Launch]], *, seed: int = 0, error: float = 1 - CONFIDENCE) -> Quantity:
    """Return how many times longer A takes than B, from fresh pairs of processes: resampled pair, then block, then
    step.

    Each pair gives the ratio of its two medians; the result is the median over pairs. `n` is the number of pairs. One
    pair says nothing about the next one, so it has no interval. `error`: how often the interval may miss. If pairs are
    so few that even the smallest and the largest ratio miss more often, the interval is that of Student's t.
    """
    ratios = np.array([median_along(flat_steps([a])) / median_along(flat_steps([b])) for a, b in pairs])
    if len(pairs) == 1:
        return Quantity.without_interval(float(ratios[0]), why="one pair has no interval")
    random = np.random.default_rng(seed)
    inner = np.array(
        [_resampled_medians([a], random, REPLICATES) / _resampled_medians([b], random, REPLICATES) for a, b in pairs]
    )
    chosen = random.integers(0, len(pairs), size=(REPLICATES, len(pairs)))
    # Each time a pair is drawn, its blocks and steps are resampled again.
    replicate = random.integers(0, REPLICATES, size=chosen.shape)
    draws = median_along(inner[chosen, replicate], axis=1)
    low, high = _tails(draws, len(pairs), 1 - error)
    if 2.0 ** (1 - len(pairs)) > error:
        by_t = _mean_of_logs([math.log(ratio) for ratio in ratios], 1 - error)
        low, high = min(low, by_t.low), max(high, by_t.high)
    median = float(median_along(ratios))
    return Quantity.of(median=median, low=min(low, median), high=max(high, median), n=len(pairs))


def ratio_of_rounds(pairs: Sequence[tuple[float, float]], *, error: float = 1 - CONFIDENCE) -> Quantity:
    """Return how many times as large A is as B. Each round has one value of both, from fresh processes. `error`: how
    often the interval may miss.

    A slowdown of a whole round cancels in its ratio. The middle is their median, which one disturbed launch of three
    does not move; the interval is Student's t on the logs of the ratios, which it widens. A over B is the inverse of B
    over A. `n` is the number of rounds. Two give a valid but very wide interval; fewer raise ValueError.
    """
    logs = [math.log(a / b) for a, b in pairs]
    mean, median = _mean_of_logs(logs, 1 - error), _exp(float(median_along(logs)))
    return Quantity.of(median=median, low=min(mean.low, median), high=max(mean.high, median), n=len(pairs))


def median_of_rounds(values: Sequence[float]) -> Quantity:
    """Return the median of one value per round, from fresh processes, with Student's t interval across rounds."""
    mean = _mean_of_logs([math.log(value) for value in values])
    median = float(median_along(values))
    return Quantity.of(median=median, low=min(mean.low, median), high=max(mean.high, median), n=mean.n)


class JointMedians(Struct, frozen=True, kw_only=True):
    """The medians of several series that were measured in the same rounds, and bootstrap draws that use the same rounds
    for all series. So sums and ratios of medians have an interval too. The last axis of both is the series."""

    medians: Array
    draws: Array
    by_round: Array  # rounds x series: the medians of each round
    n: int

    @property
    def rounds(self) -> int:
        return len(self.by_round)

    def quantity(self, of: Callable[[Array], Array]) -> Quantity:
        """Apply a formula to the medians. It receives an array whose last axis is the series, and reduces that axis."""
        value = float(of(self.medians))
        if self.n == 1:
            return Quantity.without_interval(value)
        low, high = _tails(of(self.draws), self.rounds)
        return Quantity.of(median=value, low=min(low, value), high=max(high, value), n=self.n)

    def quantity_of_few(self, of: Callable[[Array], Array]) -> Quantity:
        """The same where rounds may be so few that their bootstrap says too little: then as wide as Student's t."""
        return widened_for_few(self.quantity(of), of(self.by_round))


def widened_for_few(quantity: Quantity, of_rounds: Array) -> Quantity:
    """Widen an interval to that of Student's t over one value per round, if there are so few rounds that even the
    smallest and the largest value miss more often than it may."""
    rounds = len(of_rounds)
    if rounds >= FEWEST_FOR_CONFIDENCE or rounds < 2 or not quantity.has_interval:
        return quantity
    reach = student_t((1 + CONFIDENCE) / 2, rounds - 1) * float(np.std(of_rounds, ddof=1)) / math.sqrt(rounds)
    middle = float(np.mean(of_rounds))
    low, high = min(quantity.low, middle - reach), max(quantity.high, middle + reach)
    return Quantity.of(median=quantity.median, low=low, high=high, n=quantity.n)


def joint_medians(series: Sequence[Launch], *, seed: int = 0, replicates: int = REPLICATES) -> JointMedians:
    """Each series has a block for every round. Draw the round, then the step, the same for all series."""
    random = np.random.default_rng(seed)
    flat = [flat_steps([blocks]) for blocks in series]
    sizes = np.array([[len(block) for block in blocks] for blocks in series])  # series x rounds
    starts = np.cumsum(sizes, axis=1) - sizes
    rounds = len(series[0])
    per_round = max(len(block) for blocks in series for block in blocks)
    draws = np.empty((replicates, len(series)))
    longest = max(len(values) for values in flat)
    table = np.array([np.pad(values, (0, longest - len(values))) for values in flat])  # series x steps
    for replicate in range(replicates):
        chosen = np.repeat(random.integers(0, rounds, size=rounds), per_round)
        where = random.random(rounds * per_round)
        steps = starts[:, chosen] + (where * sizes[:, chosen]).astype(np.int64)
        draws[replicate] = median_along(np.take_along_axis(table, steps, axis=1))
    return JointMedians(
        medians=np.array([median_along(values) for values in flat]),
        draws=draws,
        by_round=np.array([[median_along(block) for block in blocks] for blocks in series]).T,
        n=min(len(values) for values in flat),
    )


def quantity_of_draws(value: float, draws: Array, *, units: int, n: int) -> Quantity:
    """Return a value with the interval of its bootstrap draws. `units`: how many were resampled at the top."""
    if units < 2:
        return Quantity.without_interval(value, n=n)
    low, high = _tails(draws, units)
    return Quantity.of(median=value, low=min(low, value), high=max(high, value), n=n)


def _mean_of_logs(logs: Sequence[float], confidence: float = CONFIDENCE) -> Quantity:
    if len(logs) < 2:
        raise ValueError(f"{len(logs)} round gives no interval across rounds")
    mean = math.fsum(logs) / len(logs)
    spread = math.sqrt(math.fsum((log - mean) ** 2 for log in logs) / (len(logs) - 1))
    reach = student_t((1 + confidence) / 2, len(logs) - 1) * spread / math.sqrt(len(logs))
    return Quantity.of(median=_exp(mean), low=_exp(mean - reach), high=_exp(mean + reach), n=len(logs))


def _exp(log: float) -> float:
    return math.exp(max(-_LARGEST_LOG, min(log, _LARGEST_LOG)))


def flat_steps(launches: Sequence[Launch]) -> Array:
    values = [np.asarray(block, dtype=np.float64) for launch in launches for block in launch]
    return np.concatenate(values) if values else np.empty(0)


def _top_units(launches: Sequence[Launch]) -> int:
    """Return the number of top-level units: launches, or the blocks of one launch, or the steps of one block."""
    if len(launches) > 1:
        return len(launches)
    blocks = launches[0]
    return len(blocks) if len(blocks) > 1 else len(blocks[0])


def _resampled_medians(launches: Sequence[Launch], random: np.random.Generator, replicates: int) -> Array:
    """Medians of resampled steps: launch, then block, then step, with replacement at every level.

    Draws ranks, which have the same median: to select among short integers takes a fraction of the time.
    """
    steps = flat_steps(launches)
    order = np.argsort(steps)
    ranks = np.empty(len(steps), dtype=np.uint16 if len(steps) <= 2**16 else np.uint32)
    ranks[order] = np.arange(len(steps))
    sizes = np.array([len(block) for launch in launches for block in launch])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    blocks = _draw_blocks(launches, sizes, random, replicates)  # replicates x blocks
    per_block = max(1, round(len(steps) / len(sizes)))
    per_block = max(1, min(per_block, _DRAWS_AT_MOST // (replicates * blocks.shape[1])))
    lengths = sizes.astype(np.float32)
    half, is_odd = divmod(blocks.shape[1] * per_block, 2)
    lower, upper = np.empty(replicates, dtype=ranks.dtype), np.empty(replicates, dtype=ranks.dtype)
    chunk = max(1, _DRAWS_AT_ONCE // (blocks.shape[1] * per_block))
    for first in range(0, replicates, chunk):
        some, rows = blocks[first : first + chunk], slice(first, first + chunk)
        where = random.random((*some.shape, per_block), dtype=np.float32) * lengths[some][..., None]
        draws = ranks[starts[some][..., None] + where.astype(np.int32)].reshape(len(some), -1)
        draws.partition(half, axis=1)
        upper[rows] = draws[:, half]
        lower[rows] = draws[:, half] if is_odd else draws[:, :half].max(axis=1)
    ordered = steps[order]
    return (ordered[lower] + ordered[upper]) / 2


def _draw_blocks(
    launches: Sequence[Launch], sizes: NDArray[np.int64], random: np.random.Generator, replicates: int
) -> NDArray[np.int64]:
    """Return block numbers, a row per replicate. Draw a block in proportion to its size, so that every step counts."""
    if len(launches) == 1:
        return random.choice(len(sizes), size=(replicates, len(sizes)), p=sizes / sizes.sum())
    counts = [len(launch) for launch in launches]
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    per_launch = max(1, round(sum(counts) / len(counts)))
    chosen = random.integers(0, len(launches), size=(replicates, len(launches)))
    rows = np.empty((replicates, len(launches), per_launch), dtype=np.int64)
    for number, count in enumerate(counts):
        share = sizes[first[number] : first[number] + count]
        mask = chosen == number
        rows[mask] = first[number] + random.choice(count, size=(int(mask.sum()), per_launch), p=share / share.sum())
    return rows.reshape(replicates, -1)


def _tails(draws: Array, units: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    tail = expanded_tail(units, confidence)
    ordered = np.sort(draws)
    return quantile_of(ordered, tail), quantile_of(ordered, 1 - tail)


def expanded_tail(units: int, confidence: float = CONFIDENCE) -> float:
    """Return the quantile at which a bootstrap over few units is as wide as Student's t interval."""
    if units < 2:
        return 0.0
    reach = student_t((1 + confidence) / 2, units - 1) * math.sqrt(units / (units - 1))
    return NormalDist().cdf(-reach)


@cache
def student_t(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t, for a probability above one half."""
    low, high = 0.0, 1.0
    while _student_cdf(high, freedom) < probability:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_cdf(middle, freedom) < probability else (low, middle)
    return high


def _student_cdf(t: float, freedom: int) -> float:
    """Evaluate the finite series for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4), or the normal
    distribution for so many that the difference is negligible."""
    if freedom > _NEARLY_NORMAL:
        return NormalDist().cdf(t)
    angle = math.atan(t / math.sqrt(freedom))
    cosine2 = math.cos(angle) ** 2
    odd = freedom % 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for number in range(odd, freedom - 1, 2):
        total += term
        term *= cosine2 * (number + 1) / (number + 2)
    within = 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
    return (1 + within) / 2
