"""Decides what to look at next. It is fed with looks and asks for points; it starts and times nothing itself.

    starts ─▶ the point with the largest expected improvement per second ─▶ …
              every sixth look repeats the default, so that changes of the machine show
              a result that is far below what was expected is repeated once

So a real search, a resumed one and a replay on recorded numbers run the same code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, median
from typing import Final

import numpy as np
from msgspec import Struct

from deepstone.measure.ratios import LEAST_DIFFERENCE
from deepstone.results.tune import LookKind
from deepstone.tuner.finals import FEWEST_ROUNDS
from deepstone.tuner.model import CHANGE_COST, Array, Landscape, Model
from deepstone.tuner.space import Point

SENTINEL_EVERY: Final = 6
_CHECK_MARGIN: Final = 1.5  # a check also reads gradients and parameters, and rounds the weights of the default
_KNOWN: Final = 1.5  # times the noise: how uncertain a difference between two setups may be to be believed
_FAR_SD: Final = 3.0  # a result so many standard deviations low is repeated
_LEAST_GAIN: Final = 0.002  # of log speed: with less to expect, the search ends
_OUTDONE: Final = 0.05  # of log speed: who is so far behind at one batch does not win at another
_LEADERS: Final = 2  # setups at the batch that was asked for whose like at another one is worth a look
_FROM_CACHE: Final = 0.25  # of a first step: what is left of it where its programs were compiled before
_FAILURE_PRIOR: Final = 0.05
_TRIES: Final = 12  # after which a search gives up if nothing runs at all
_NORMAL: Final = NormalDist()


class Ask(Struct, frozen=True, kw_only=True):
    kind: LookKind
    point: Point


class Seen(Struct, frozen=True, kw_only=True):
    """One look. `value`: the log of what is sought, larger is better; None if there is none, because it failed or
    breaks a limit. `first_step_s`: its first step, with what that compiled. `never_stepped`: it was
    ended before that, because the budget has no time for more."""

    kind: LookKind
    point: Point
    value: float | None
    took_s: float
    log_speed: float | None = None
    first_step_s: float = 0.0
    never_stepped: bool = False


@dataclass(kw_only=True)
class Search:
    """`starts`: points to look at first, the default among them. `expected_s`: a guess of what a look takes; the search
    learns how far it is off. `near`: more points around one, for spaces that are not listed. `slowdown`: a point counts
    only if it is at most so many times slower than the fastest. `at_batch`: where the batch is free, the same point at
    the batch that was asked for; points there have a winner of their own, and two of three looks.
    `can_run`: whether a point is a setup of the space. `is_refused`: whether it is shown to be other training.
    `keeps_programs`: what the first look at a point compiles, later ones find. `slow_to_start`: the axes whose values
    make the start of a point long. `quicker`: the same point without these values."""

    landscape: Landscape
    starts: Sequence[Point]
    noise_sd: float
    expected_s: Callable[[Point], float] = lambda _point: 1.0
    near: Callable[[Point], Iterable[Point]] = lambda _point: ()
    slowdown: float | None = None
    at_batch: Callable[[Point], Point] | None = None
    can_run: Callable[[Point], bool] = lambda _point: True
    is_refused: Callable[[Point], bool] = lambda _point: False
    keeps_programs: bool = False
    slow_to_start: Callable[[Point], Collection[str]] = lambda _point: ()
    quicker: Callable[[Point], Point] = lambda point: point
    seen: list[Seen] = field(default_factory=list[Seen])
    model: Model = field(init=False)
    _speed: Model = field(init=False)
    _foreseen: tuple[Point, float, float] | None = None  # what the next look is expected to show, and how surely

    def __post_init__(self) -> None:
        self.model = Model(self.landscape, noise_sd=self.noise_sd)
        self._speed = Model(self.landscape, noise_sd=self.noise_sd)

    def tell(self, seen: Seen) -> None:
        self.seen.append(seen)

    def next(self, time_s: float = math.inf) -> Ask | None:
        """What to look at, of what takes no longer than this; None if nothing better is to be expected of that. The
        first start is asked for in any case."""
        for point in self._open_starts():
            if not self.seen or self.cost_s(point) <= time_s:
                return Ask(kind="start", point=point)
        if not self.good:
            return self._anything_that_runs(time_s)
        self.fit()
        ask = self._next(time_s)
        if ask is not None:
            found = self.model.predict([ask.point])
            self._foreseen = ask.point, float(found.mean[0]), float(found.sd[0])
        return ask

    @property
    def is_starting(self) -> bool:
        """Whether there are starts to look at, or nothing has run yet."""
        return bool(self._open_starts()) or not self.good

    def _open_starts(self) -> list[Point]:
        """What the user or experience names; where its start takes too long, what is left of it without that."""
        looked = {seen.point for seen in self.seen}
        quicker = [self.quicker(seen.point) for seen in self.seen if seen.kind == "start" and seen.never_stepped]
        return [
            point
            for point in dict.fromkeys([*self.starts, *filter(self.can_run, quicker)])
            if point not in looked and not self._is_outdone(point)
        ]

    def _is_outdone(self, point: Point) -> bool:
        """Whether it is at another batch, and far behind at the one that was asked for."""
        there = self._at_asked_batch(point)
        values = [seen.value for seen in self.seen if seen.point == there and seen.value is not None]
        rivals = [seen.value for seen in self.seen if seen.value is not None and self._is_at_asked_batch(seen.point)]
        return there != point and bool(values) and max(values) < max(rivals) - _OUTDONE

    def _at_asked_batch(self, point: Point) -> Point:
        return point if self.at_batch is None else self.at_batch(point)

    def _is_at_asked_batch(self, point: Point) -> bool:
        return self._at_asked_batch(point) == point

    def _anything_that_runs(self, time_s: float) -> Ask | None:
        """Nothing has run yet: try what resembles the failed setups least, with few changes; not for ever."""
        looked = {seen.point for seen in self.seen}
        pool = [point for point in self.landscape.points if point not in looked and self.cost_s(point) <= time_s]
        if not pool or len(looked) >= len(self.starts) + _TRIES:
            return None
        changes = np.array([sum(a != b for a, b in zip(p, self.landscape.default, strict=True)) for p in pool])
        chosen = int(np.argmin(self._failure_chance(pool) + 0.05 * changes))
        return Ask(kind="search", point=pool[chosen])

    def _next(self, time_s: float) -> Ask | None:
        doubtful, default = self._doubtful(), self.landscape.default
        if doubtful is not None and self.cost_s(doubtful) <= time_s:
            return Ask(kind="repeat", point=doubtful)
        since = [seen.point == default for seen in reversed(self.seen)]
        runs = any(seen.point == default for seen in self.good)
        if runs and since.index(True) >= SENTINEL_EVERY - 1 and self.cost_s(default) <= time_s:
            return Ask(kind="sentinel", point=default)
        return self._most_promising(time_s)

    @property
    def good(self) -> list[Seen]:
        """The looks that count: without disturbed launches, which a repetition showed to be far too slow."""
        return [seen for seen in self.seen if seen.value is not None and not self._is_disturbed(seen)]

    @property
    def noise(self) -> float:
        return self.model.noise_sd

    def fit(self) -> None:
        good = self.good
        runs = any(seen.point == self.landscape.default for seen in good)
        self.model.change_cost = CHANGE_COST if runs else 0.0
        order = [float(number) for number, seen in enumerate(self.seen) if any(seen is each for each in good)]
        values = [seen.value for seen in good if seen.value is not None]
        self.model.fit([seen.point for seen in good], values, order)
        if self.slowdown is not None:
            speeds = [seen.log_speed if seen.log_speed is not None else 0.0 for seen in good]
            self._speed.fit([seen.point for seen in good], speeds, order)

    def best(self, count: int) -> list[Point]:
        """The points that were looked at, without the default, by their expected value; the best first. Call `fit`
        before."""
        points = [point for point in dict.fromkeys(seen.point for seen in self.good) if point != self.landscape.default]
        if not points:
            return []
        worth = self.model.predict(points).mean + self._penalty(points)
        return [points[place] for place in np.argsort(-worth, kind="stable")[:count]]

    def simplified(self, point: Point, revert: Callable[[Point], Iterable[Point]], *, boldly: bool = False) -> Point:
        """The point without changes of which the looks show that they do not help, one by one and together. A change
        stays if nobody looked at the like without it. `revert`: the points with one change fewer. `boldly`: without
        those too that the looks leave open; on a noisy machine that may be a large loss."""
        simple, margin = point, math.log1p(LEAST_DIFFERENCE)
        known = _KNOWN * max(self.noise, margin)
        while True:
            losses = {simpler: self.model.contrast(simple, simpler) for simpler in revert(simple)}
            simplest = min(losses, key=lambda simpler: losses[simpler][0], default=None)
            if simplest is None:
                return simple
            (loss, sd), (in_all, in_all_sd) = losses[simplest], self.model.contrast(point, simplest)
            open_, open_in_all = (sd, in_all_sd) if boldly else (min(sd, margin), min(in_all_sd, margin))
            if max(sd, in_all_sd) > known or loss > margin / 2 + open_ or in_all > margin + open_in_all:
                return simple
            simple = simplest

    def finalists(
        self, count: int, revert: Callable[[Point], Iterable[Point]], is_refused: Callable[[Point], bool]
    ) -> list[Point]:
        """The best point in a simpler form, in its simplest, then as it is, then others that may be as good; without
        those that are refused."""
        if not self.good:
            return []
        self.fit()
        best = [point for point in self.best(len(self.seen)) if not is_refused(point)][:count]
        failed = {seen.point for seen in self.seen if seen.value is None}
        simple = [self.simplified(point, revert, boldly=boldly) for point in best[:1] for boldly in (False, True)]
        usable = [
            point
            for point in simple
            if point != self.landscape.default and point not in failed and not is_refused(point)
        ]
        return list(
            dict.fromkeys([*usable, *best[:1], *(point for point in best[1:] if self._rivals(best[0], point))])
        )[:count]

    def _rivals(self, best: Point, other: Point) -> bool:
        """Whether the looks leave it open that the other one is as good."""
        behind, sd = self.model.contrast(best, other)
        return behind - 2 * sd < math.log1p(LEAST_DIFFERENCE)

    def cost_s(self, point: Point) -> float:
        """What a look at it takes: as long as the looks at it did, else as those at its framework tell. One that hung
        until it was ended says nothing about others."""
        ran = [seen for seen in self.seen if seen.value is not None] or self.seen
        at_it = [seen.took_s for seen in self.seen if seen.point == point]
        if at_it:
            return median(at_it[1:] or [at_it[0] - self.compile_s(point)] if self.keeps_programs else at_it)
        framework = self.landscape.framework(point)
        paces = [
            (self.landscape.framework(seen.point) == framework, seen.took_s / max(self.expected_s(seen.point), 1e-3))
            for seen in ran
        ]
        own = [pace for is_own, pace in paces if is_own]
        every = [pace for _, pace in paces]
        return self.expected_s(point) * (median(own) if own else median(every) if every else 1.0)

    def compile_s(self, point: Point) -> float:
        """How much longer a look at it takes that finds nothing compiled, where later looks find something."""
        first = next((seen for seen in self.seen if seen.point == point), None)
        return (1 - _FROM_CACHE) * first.first_step_s if first is not None and self.keeps_programs else 0.0

    @property
    def winners(self) -> int:
        """How many are sought: where the batch is free, one at the batch that was asked for, and one at any."""
        return 1 if self.at_batch is None else 2

    def least_finals_s(self) -> float:
        """What the shortest finals take: the default and one more setup for each winner."""
        winners = [self._best_seen, self._best_at_batch][: self.winners]
        points = [self.landscape.default, *winners]
        return math.fsum(FEWEST_ROUNDS * self.cost_s(point) + self.compile_s(point) for point in points)

    def least_check_s(self) -> float:
        """What it takes to check one setup, at the batch that was asked for: the default, and the setup in its own
        precision and in the default's, which are other programs than those that are timed."""
        best = self._best_at_batch
        return _CHECK_MARGIN * (self.cost_s(self.landscape.default) + 2 * (self.cost_s(best) + self.compile_s(best)))

    @property
    def _best_at_batch(self) -> Point:
        return self._at_asked_batch(self._best_seen)

    @property
    def _best_seen(self) -> Point:
        good = self.good
        return max(good, key=lambda seen: seen.value or 0.0).point if good else self.landscape.default

    def _most_promising(self, time_s: float) -> Ask | None:
        if self.at_batch is None:
            return self._most_promising_of(_every, time_s)
        is_there, leaders = self._is_at_asked_batch, self._leaders()

        def leads_there(point: Point) -> bool:
            """Whether it is at another batch, and the one that was asked for, which tells sooner what its other values
            are good for, speaks for it; or it cannot run there."""
            there = self._at_asked_batch(point)
            return there != point and (there in leaders or not self.can_run(there))

        inside = [is_there(seen.point) for seen in self.seen if seen.point != self.landscape.default]
        turns = [is_there, leads_there]
        if 3 * sum(inside) > 2 * len(inside):
            turns.reverse()
        return next((ask for turn in turns if (ask := self._most_promising_of(turn, time_s)) is not None), None)

    def _leaders(self) -> set[Point]:
        """Who may win at the batch that was asked for, the default too: the few best, if they are not outdone."""
        looked = [point for point in {seen.point for seen in self.good} if self._is_at_asked_batch(point)]
        if not looked:
            return set()
        worth = dict(zip(looked, self.model.predict(looked).mean + self._penalty(looked), strict=True))
        best = sorted(looked, key=lambda point: -worth[point])[:_LEADERS]
        return {point for point in best if worth[point] >= worth[best[0]] - _OUTDONE}

    def _most_promising_of(self, counts: Callable[[Point], bool], time_s: float) -> Ask | None:
        top = [point for point in self.best(len(self.seen)) if counts(point)][:3]
        pool = list(dict.fromkeys([*self.landscape.points, *(near for point in top for near in self.near(point))]))
        hopeless = {seen.point for seen in self.seen if seen.value is None}
        pool = [point for point in pool if point not in hopeless and counts(point)]
        all_s = {point: self.cost_s(point) for point in pool}
        pool = [point for point in pool if all_s[point] <= time_s]
        if not pool:
            return None
        gains = self._expected_improvement(pool, top) * (1 - self._failure_chance(pool))
        costs = np.sqrt(np.array([all_s[point] for point in pool]))
        chosen = int(np.argmax(gains / costs))
        if float(np.max(gains)) < _LEAST_GAIN:
            return None
        looked = any(seen.point == pool[chosen] for seen in self.seen)
        return Ask(kind="repeat" if looked else "search", point=pool[chosen])

    def _expected_improvement(self, pool: Sequence[Point], top: Sequence[Point]) -> Array:
        """Over the best that is expected of a point that was looked at; less where the noise hides it."""
        candidates = [self.landscape.default, *top]
        target = float(np.max(self.model.predict(candidates).mean + self._penalty(candidates)))
        found = self.model.predict(pool)
        away = (found.mean - target) / found.sd
        density = np.exp(-0.5 * away**2) / math.sqrt(2 * math.pi)
        below = 0.5 * (1 + np.vectorize(math.erf)(away / math.sqrt(2)))
        gain = found.sd * (density + away * below)
        gain *= found.sd / np.sqrt(found.sd**2 + self.noise**2)
        return gain * self._allowed_chance(pool)

    def _allowed_chance(self, pool: Sequence[Point]) -> Array:
        """How likely each point is fast enough."""
        if self.slowdown is None:
            return np.ones(len(pool))
        found, least = self._speed.predict(pool), self._least_speeds(pool)
        return 0.5 * (1 + np.vectorize(math.erf)((found.mean - least) / found.sd / math.sqrt(2)))

    def _penalty(self, points: Sequence[Point]) -> Array:
        """What makes a point that is too slow worse than every one that is not."""
        if self.slowdown is None:
            return np.zeros(len(points))
        return np.where(self._speed.predict(points).mean < self._least_speeds(points), -100.0, 0.0)

    def _least_speeds(self, points: Sequence[Point]) -> Array:
        """The log of the least speed of each point: at the batch that was asked for, the fastest there is its measure,
        and elsewhere the fastest of all."""
        assert self.slowdown is not None
        looked = [point for point in dict.fromkeys(seen.point for seen in self.good) if not self.is_refused(point)]
        if not looked:
            return np.full(len(points), -math.inf)
        speeds = self._speed.predict(looked).mean
        there = [speed for point, speed in zip(looked, speeds, strict=True) if self._is_at_asked_batch(point)]
        of_all, of_asked = float(np.max(speeds)), max(map(float, there), default=-math.inf)
        fastest = [of_asked if self._is_at_asked_batch(point) else of_all for point in points]
        return np.array(fastest) - math.log(self.slowdown)

    def _failure_chance(self, pool: Sequence[Point]) -> Array:
        """What resembles a failed setup will probably fail too, and so will a value that never ran in its framework. A
        start that took too long tells only about the values that make it long."""
        encoder = self.model.encoder
        rows, looked = encoder.rows(pool), encoder.rows([seen.point for seen in self.seen])
        failed = np.array([seen.value is None for seen in self.seen])
        if not failed.any():
            return np.full(len(pool), _FAILURE_PRIOR)
        like = encoder.likeness(rows, looked)
        slow = np.array([self._are_slow(point) for point in pool]).T
        culprits = np.array([self._are_slow(seen.point, seen.never_stepped) for seen in self.seen]).T
        # axis x point x look. A value that makes a start too long is like any other that makes it long.
        alike = (like.by_axis == 1.0) | (slow[:, :, None] & culprits[:, None, :])
        counts = (culprits | ~culprits.any(axis=0))[:, None, :]
        weight = like.framework * np.exp(-1.2 * np.sum(1 - like.by_axis, axis=0))
        weight *= np.all(alike | ~culprits[:, None, :], axis=0)
        near = (0.5 * _FAILURE_PRIOR + weight @ failed) / (0.5 + np.sum(weight, axis=1))
        shares = like.framework * (alike & counts)  # the same value in the same framework
        failures, successes = shares @ failed, shares @ ~failed
        blamed = np.where(successes == 0, (failures + 0.5 * _FAILURE_PRIOR) / (failures + 0.5), 0.0)
        return np.maximum(near, np.max(blamed, axis=0))

    def _are_slow(self, point: Point, counts: bool = True) -> list[bool]:
        """Of each axis, whether its value makes the start of a point long."""
        slow = self.slow_to_start(point) if counts else ()
        return [axis.name in slow for axis in self.landscape.axes]

    def _doubtful(self) -> Point | None:
        """The point of the latest look, if that was far below what the looks before made likely."""
        latest, expected = self.seen[-1], self._foreseen
        if latest.value is None or latest.kind == "repeat" or expected is None or expected[0] != latest.point:
            return None
        _, mean, sd = expected
        return latest.point if latest.value < mean - _FAR_SD * math.sqrt(sd**2 + self.noise**2) else None

    def _is_disturbed(self, seen: Seen) -> bool:
        """Whether a later repetition of the same point was so much faster that something disturbed this look."""
        if seen.value is None:
            return False
        place = next(number for number, each in enumerate(self.seen) if each is seen)
        later = [
            each.value
            for each in self.seen[place + 1 :]
            if each.point == seen.point and each.kind == "repeat" and each.value is not None
        ]
        return bool(later) and max(later) - seen.value > _FAR_SD * math.sqrt(2) * self.noise


def _every(_point: Point) -> bool:
    return True
