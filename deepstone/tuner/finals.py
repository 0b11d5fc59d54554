"""The finals: the default and the few best setups, in fresh processes, over a number of rounds fixed beforehand.

    round 1   B  default  A       random order in every round
    round 2   default  A  B       a slow moment of the machine meets all of them
    …         as many rounds as the noise demands and the time allows

What the search saw chose the finalists and is not used again: the best of many noisy numbers is too good to be true.
Every finalist is compared with the default round by round, and the intervals hold for all of them together.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from deepstone.measure.ratios import LEAST_DIFFERENCE, is_above
from deepstone.measure.statistics import CONFIDENCE, ratio_of_rounds
from deepstone.results.quantity import Quantity
from deepstone.results.tune import Answer
from deepstone.tuner.space import Point

MOST_FINALISTS: Final = 3  # beside the default
QUIET_NOISE: Final = 0.01
_ROUNDS_QUIET: Final = 3
_ROUNDS: Final = 6
_MOST_ROUNDS: Final = 12
FEWEST_ROUNDS: Final = 3  # fewer give an interval that says nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class Contest:
    """`points`: the default first. `order`: who is measured when, round by round."""

    points: tuple[Point, ...]
    order: tuple[tuple[Point, ...], ...]

    @property
    def rounds(self) -> int:
        return len(self.order)


def plan_finals(
    default: Point,
    best: Sequence[Point],
    *,
    noise: float,
    time_s: float,
    cost_s: Callable[[Point], float],
    seed: int,
    fewest: int = 1,
) -> Contest:
    """As many finalists as fit with enough rounds for this noise. Where time is short, two with fewer rounds, because
    the best of the search is not sure to be the best; then one. `fewest`: how many there are in any case."""
    wanted = _ROUNDS_QUIET if noise < QUIET_NOISE else _ROUNDS
    finalists = list(best[:MOST_FINALISTS])
    while len(finalists) > 2 and wanted * _round_s(default, finalists, cost_s) > time_s:
        finalists.pop()
    while len(finalists) > fewest and FEWEST_ROUNDS * _round_s(default, finalists, cost_s) > time_s:
        finalists.pop()
    fitting = int(time_s / max(_round_s(default, finalists, cost_s), 1e-9))
    most = wanted if noise < QUIET_NOISE else _MOST_ROUNDS
    rounds = max(FEWEST_ROUNDS, min(fitting, most))
    points, chance = (default, *finalists), random.Random(seed)
    order = tuple(tuple(chance.sample(points, len(points))) for _ in range(rounds if finalists else 0))
    return Contest(points=points, order=order)


def _round_s(default: Point, finalists: Sequence[Point], cost_s: Callable[[Point], float]) -> float:
    return math.fsum(cost_s(point) for point in (default, *finalists))


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """`best`: the winner, or the default. `ratios`: over the default, of every finalist that was measured in all
    complete rounds. `within`: finalists as good as the best, which change more."""

    answer: Answer
    best: Point
    ratios: Mapping[Point, Quantity]
    within: tuple[Point, ...] = ()


def judge(
    points: Sequence[Point],
    rounds: Sequence[Mapping[Point, float]],
    *,
    changes: Callable[[Point], int],
    expected: Callable[[Point], float] | None = None,
) -> Judged:
    """`points`: the default first. `rounds`: in each, what is sought of every finalist, larger is better; one that
    failed is missing, and is out. `changes`: how many axes a point changes. `expected`: the log of what is sought, by
    all that was seen; it chooses among the finalists, and what is said of the chosen one comes from the rounds alone.
    """
    default = points[0]
    complete = [each for each in rounds if default in each]
    if rounds and not complete:
        return _without_default(points, rounds)
    standing = [point for point in points[1:] if len(complete) > 1 and all(point in values for values in complete)]
    if not standing:
        return Judged(answer="nothing better", best=default, ratios={})
    error = (1 - CONFIDENCE) / len(standing)
    ratios = {
        point: ratio_of_rounds([(values[point], values[default]) for values in complete], error=error)
        for point in standing
    }
    merit = {point: math.log(ratios[point].median) if expected is None else expected(point) for point in standing}
    top = max(merit.values()) - math.log1p(LEAST_DIFFERENCE)
    as_good = sorted(
        (point for point in standing if merit[point] >= top), key=lambda point: (changes(point), -merit[point])
    )
    shown = [point for point in as_good if is_above(ratios[point])]
    if shown:
        others = tuple(point for point in as_good if point != shown[0])
        return Judged(answer="better", best=shown[0], ratios=ratios, within=others)
    open_ = any(ratio.high > 1 + LEAST_DIFFERENCE for ratio in ratios.values())
    return Judged(answer="not separable" if open_ else "nothing better", best=default, ratios=ratios)


def _without_default(points: Sequence[Point], rounds: Sequence[Mapping[Point, float]]) -> Judged:
    """If the default does not run, whatever runs is better; the best of it has the largest mean."""
    standing = [point for point in points[1:] if all(point in values for values in rounds)]
    if not standing:
        return Judged(answer="nothing better", best=points[0], ratios={})
    best = max(standing, key=lambda point: math.fsum(math.log(values[point]) for values in rounds))
    return Judged(answer="better", best=best, ratios={})
