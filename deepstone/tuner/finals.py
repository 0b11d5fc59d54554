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
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from deepstone.measure.ratios import LEAST_DIFFERENCE, is_above
from deepstone.measure.statistics import CONFIDENCE, ratio_of_rounds, student_t
from deepstone.results.quantity import Quantity
from deepstone.results.tune import Answer
from deepstone.tuner.space import Point

MOST_FINALISTS: Final = 3  # beside the default
QUIET_NOISE: Final = 0.01
_ROUNDS_QUIET: Final = 3
_ROUNDS: Final = 6
_MOST_ROUNDS: Final = 12
FEWEST_ROUNDS: Final = 3  # fewer give an interval that says nothing
_WIDEST: Final = 10.0  # times its low end: an interval that says anything
_FEWEST_REPEATS: Final = 4  # degrees of freedom from which the spread of launches is known well enough


class Contest(Struct, frozen=True, kw_only=True):
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
    compile_s: Callable[[Point], float] = lambda _point: 0.0,
) -> Contest:
    """As many finalists as fit with enough rounds for this noise. Where time is short, two with fewer rounds, because
    the best of the search is not sure to be the best; then one. `fewest`: how many there are in any case. `compile_s`:
    how much longer a setup takes in the first round."""

    def all_s(rounds: int) -> float:
        return rounds * _round_s(default, finalists, cost_s) + _round_s(default, finalists, compile_s)

    wanted = _ROUNDS_QUIET if noise < QUIET_NOISE else _ROUNDS
    finalists = list(best[:MOST_FINALISTS])
    while len(finalists) > 2 and all_s(wanted) > time_s:
        finalists.pop()
    while len(finalists) > fewest and all_s(FEWEST_ROUNDS) > time_s:
        finalists.pop()
    fitting = int((time_s - all_s(0)) / max(_round_s(default, finalists, cost_s), 1e-9))
    most = wanted if noise < QUIET_NOISE else _MOST_ROUNDS
    rounds = max(FEWEST_ROUNDS, min(fitting, most))
    points, chance = (default, *finalists), random.Random(seed)
    order = tuple(tuple(chance.sample(points, len(points))) for _ in range(rounds if finalists else 0))
    return Contest(points=points, order=order)


def _round_s(default: Point, finalists: Sequence[Point], cost_s: Callable[[Point], float]) -> float:
    return math.fsum(cost_s(point) for point in (default, *finalists))


class Spread(Struct, frozen=True, kw_only=True):
    """How far launches of one setup are apart: the standard deviation of a log, and its degrees of freedom."""

    sd: float
    freedom: int

    @staticmethod
    def of(groups: Iterable[Sequence[float]]) -> Spread | None:
        """Pool the repeated launches of all setups, each a group of logs; None where they are too few. Drift of the
        machine during a search makes it wider, not narrower."""
        several = [group for group in groups if len(group) > 1]
        freedom = sum(len(group) - 1 for group in several)
        if freedom < _FEWEST_REPEATS:
            return None
        squares = math.fsum((log - math.fsum(group) / len(group)) ** 2 for group in several for log in group)
        return Spread(sd=math.sqrt(squares / freedom), freedom=freedom)

    def around(self, logs: Sequence[float], *, launches_each: int = 1, error: float = 1 - CONFIDENCE) -> Quantity:
        """The geometric mean of few values, with an interval from this spread. `launches_each`: 2 for ratios."""
        mean = math.fsum(logs) / len(logs)
        reach = student_t(1 - error / 2, self.freedom) * self.sd * math.sqrt(launches_each / len(logs))
        return Quantity.of(median=math.exp(mean), low=math.exp(mean - reach), high=math.exp(mean + reach), n=len(logs))


class Judged(Struct, frozen=True, kw_only=True):
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
    spread: Spread | None = None,
) -> Judged:
    """`points`: the default first. `rounds`: in each, what is sought of every finalist, larger is better; one that
    failed is missing, and is out. `changes`: how many axes a point changes. `expected`: the log of what is sought, by
    all that was seen; it chooses among the finalists, and what is said of the chosen one comes from the rounds alone.
    `spread`: of all launches; if the end of the time left fewer rounds than an interval needs, it takes its place.
    """
    default = points[0]
    complete = [each for each in rounds if default in each]
    if rounds and not complete:
        return _without_default(points, rounds)
    standing = [point for point in points[1:] if all(point in values for values in complete)]
    if not standing:
        return Judged(answer="nothing better", best=default, ratios={})
    if not complete:
        return Judged(answer="not separable", best=default, ratios={})
    error = (1 - CONFIDENCE) / len(standing)
    ratios = {
        point: _ratio([(values[point], values[default]) for values in complete], error=error, spread=spread)
        for point in standing
    }

    def is_beaten(point: Point) -> bool:
        """By the finals alone: what the search expects is no reason to prefer it then."""
        pairs = ([(values[other], values[point]) for values in complete] for other in standing if other != point)
        return any(is_above(_ratio(each, error=error, spread=spread)) for each in pairs)

    unbeaten = [point for point in standing if not is_beaten(point)] or standing  # medians may go round in a circle
    merit = {point: math.log(ratios[point].median) if expected is None else expected(point) for point in unbeaten}
    top = max(merit.values()) - math.log1p(LEAST_DIFFERENCE)
    as_good = sorted(
        (point for point in merit if merit[point] >= top), key=lambda point: (changes(point), -merit[point])
    )
    shown = [point for point in as_good if is_above(ratios[point]) and not _is_too_wide(ratios[point])]
    if shown:
        others = tuple(point for point in as_good if point != shown[0])
        return Judged(answer="better", best=shown[0], ratios=ratios, within=others)
    open_ = any(ratio.high > 1 + LEAST_DIFFERENCE for ratio in ratios.values())
    return Judged(answer="not separable" if open_ else "nothing better", best=default, ratios=ratios)


def _is_too_wide(ratio: Quantity) -> bool:
    """Whether something disturbed the finals so much that the ratio is no answer."""
    return ratio.high > _WIDEST * ratio.low


def _ratio(pairs: Sequence[tuple[float, float]], *, error: float, spread: Spread | None) -> Quantity:
    """Two rounds have an interval of one degree of freedom, which says nothing: it reaches from 0.04 to 59,000."""
    if len(pairs) >= FEWEST_ROUNDS:
        return ratio_of_rounds(pairs, error=error)
    logs = [math.log(a / b) for a, b in pairs]
    if len(pairs) > 1 and spread is not None:
        return spread.around(logs, launches_each=2, error=error)
    return Quantity.without_interval(math.exp(math.fsum(logs) / len(logs)), n=len(logs), why=too_few(len(logs)))


def too_few(rounds: int) -> str:
    return f"{rounds} round{'s are' if rounds > 1 else ' is'} too few for an interval"


def _without_default(points: Sequence[Point], rounds: Sequence[Mapping[Point, float]]) -> Judged:
    """If the default does not run, whatever runs is better; the best of it has the largest mean."""
    standing = [point for point in points[1:] if all(point in values for values in rounds)]
    if not standing:
        return Judged(answer="nothing better", best=points[0], ratios={})
    best = max(standing, key=lambda point: math.fsum(math.log(values[point]) for values in rounds))
    return Judged(answer="better", best=best, ratios={})
