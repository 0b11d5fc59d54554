"""The answer of a search, put together from its log, its finals and its explanation."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.checks.same_training import summary
from deepstone.measure.statistics import median_of_rounds
from deepstone.results.quantity import Quantity
from deepstone.results.tune import (
    NOT_SHOWN,
    NOT_THE_SAME,
    BatchFree,
    Bound,
    Excluded,
    Finalist,
    FixedAxis,
    Look,
    SameSetup,
    SameTraining,
    SpaceAxis,
    TuneBudget,
    Tuned,
    TunedSetup,
    TuneLog,
    TuneSpace,
)
from deepstone.setups.axes import Value
from deepstone.tuner.explain import Explained
from deepstone.tuner.finals import FEWEST_ROUNDS, Contest, Judged, Spread, too_few
from deepstone.tuner.space import Point, Space, excluded_in_order
from deepstone.tuner.wanted import Wanted

_NOTHING_BETTER: Final = Absent("nothing is shown to be better than the default")
TIME_OVER: Final = Absent("not measured: the time was over")


class Found(Struct, frozen=True, kw_only=True):
    """All that an answer is made of. `free`: the finals with setups of any batch. `complete`: of the finals, the rounds
    that were measured to the end. `unproven`: finalists that are not shown to be the same training, and so cannot win.
    `slow`: those that are slower than the objective allows, the default too.
    """

    space: Space
    wanted: Wanted
    log: TuneLog
    contest: Contest
    judged: Judged
    free: Judged
    complete: Sequence[int]
    unproven: Sequence[Point]
    slow: Collection[Point]
    checked: Mapping[Point, SameSetup]
    explained: Explained | None
    bound: Bound | Absent
    noise: float | Absent
    spent_s: float


def answer_of(found: Found) -> Tuned:
    space, log, judged, explained = found.space, found.log, found.judged, found.explained
    is_better = judged.answer == "better"
    same = _same(found) if is_better else _NOTHING_BETTER
    return Tuned(
        objective=found.wanted.objective,
        limits=list(found.wanted.limits),
        budget=TuneBudget(
            asked_s=found.wanted.budget_s, spent_s=found.spent_s, calls=log.calls, launches=len(log.looks)
        ),
        space=described(space, found.noise),
        answer=judged.answer,
        default=_tuned(found, space.default),
        best=_tuned(found, judged.best),
        ratio=judged.ratios.get(judged.best, _no_default(found) if is_better else _NOTHING_BETTER),
        finals=[_finalist(found, point) for point in found.contest.points] if found.contest.rounds else [],
        rounds=len(found.complete),
        planned_rounds=found.contest.rounds,
        same=same,
        given_up="" if isinstance(same, Absent) else same.given_up,
        why=explained.why if explained else [],
        together=explained.together if explained else _no_default(found) if is_better else _NOTHING_BETTER,
        also_within=[space.given(point) for point in judged.within],
        no_effect=explained.no_effect if explained else [],
        not_decided=explained.not_decided if explained else [],
        bound=found.bound,
        batch_free=_batch_free(found),
        looks=[_as_judged(found, look) for look in log.looks],
    )


def described(space: Space, noise: float | Absent) -> TuneSpace:
    return TuneSpace(
        setups=space.count,
        is_estimate=not space.is_listed,
        axes=[SpaceAxis(name=axis.name, values=list(axis.values)) for axis in space.axes],
        fixed=[FixedAxis(name=name, why=why) for name, why in space.fixed.items()],
        excluded=[Excluded(reason=reason, setups=count) for reason, count in excluded_in_order(space.excluded)],
        noise=noise,
    )


def words_of(setup: Mapping[str, Value]) -> str:
    return " ".join(f"{name}={value}" for name, value in setup.items()) or "default"


def _same(found: Found) -> SameTraining:
    checked = list(found.checked.values())
    return summary(found.wanted.level, checked, found.checked.get(found.judged.best))


def _no_default(found: Found) -> Absent:
    """Why a setup is better without a ratio: the default broke a limit, or failed."""
    nothing = "so there is nothing to compare with"
    if found.space.default in found.slow:
        return Absent(f"the default is {_slower(found)}, {nothing}")
    looks = list(reversed(_looks(found, found.space.default)))
    for look in looks:
        if broken := found.wanted.broken_limit(look):
            return Absent(f"the default breaks a limit ({broken}), {nothing}")
    failed = next((look.samples_per_s for look in looks if isinstance(look.samples_per_s, Absent)), None)
    has_run = any(not isinstance(look.samples_per_s, Absent) for look in looks)
    what = "was not measured in a whole round of the finals" if has_run else "does not run"
    return Absent(f"the default {what}{'' if failed is None else f' ({failed.reason})'}, {nothing}")


def _slower(found: Found) -> str:
    return f"more than {found.wanted.objective.slowdown:g} times slower than the fastest"


def _batch_free(found: Found) -> BatchFree | Absent:
    """The winner at another batch, if one is shown to be better than every setup at the batch that was asked for."""
    space, free = found.space, found.free
    if not space.has_free_batch:
        return Absent("the batch is fixed; a range frees it, as batch=32..256")
    batch, asked = int(space.value(free.best, "batch")), int(space.value(space.default, "batch"))
    if free.answer != "better" or batch == asked:
        return Absent("no other batch is shown to be better")
    return BatchFree(
        batch=batch,
        best=_tuned(found, free.best),
        ratio=free.ratios.get(free.best, _no_default(found)),
        updates_per_epoch_ratio=asked / batch,
    )


def _as_judged(found: Found, look: Look) -> Look:
    """A refused setup has no speed that counts: it is not written, and if it trains something else, nothing learns from
    it."""
    point = found.space.point_of(look.setup)
    same = None if point is None else found.checked.get(found.space.at_asked_batch(point))
    if same is None or not same.is_refuted or found.wanted.level == "any" or isinstance(look.samples_per_s, Absent):
        return look
    refused = NOT_THE_SAME if same.is_other_training else "refused: "
    return replace(look, samples_per_s=Absent(f"{refused}{same.why_not}"))


def _that_count(found: Found, finals: Sequence[Look]) -> Sequence[Look]:
    """Those in rounds that were measured to the end, or all if there is no such round."""
    return [look for look in finals if look.round in found.complete] or finals


def _finalist(found: Found, point: Point) -> Finalist:
    looks = [look for look in _looks(found, point) if look.kind == "final"]
    counted = _that_count(found, looks)
    by_round = {look.round: look.samples_per_s for look in looks}
    is_default = point == found.contest.points[0]
    ratio = found.free.ratios.get(point) or found.judged.ratios.get(point)
    if is_default:
        ratio = Quantity.without_interval(1.0, why="it is the default")
    elif point in found.unproven:
        ratio = Absent(NOT_SHOWN)
    elif point in found.slow:
        ratio = Absent(f"it is {_slower(found)}")
    return Finalist(
        setup=found.space.given(point),
        samples_per_s=_across(found, counted, _speed),
        samples_per_j=_across(found, counted, _efficiency),
        peak_bytes=_largest([look.peak_bytes for look in looks]),
        ratio=Absent("it failed in a round, or the time was over") if ratio is None else ratio,
        rounds=[by_round.get(number, TIME_OVER) for number in range(1, found.contest.rounds + 1)],
        runs=[look.run for look in looks if look.run is not None],
        is_default=is_default,
        is_best=point == found.judged.best,
    )


def _tuned(found: Found, point: Point) -> TunedSetup:
    """By the finals; a point that was not in them by all looks at it."""
    looks = _looks(found, point)
    finals = [look for look in looks if look.kind == "final"]
    looks = _that_count(found, finals) or looks
    return TunedSetup(
        setup=found.space.given(point),
        samples_per_s=_across(found, looks, _speed),
        samples_per_j=_across(found, looks, _efficiency),
        peak_bytes=_largest([look.peak_bytes for look in looks]),
        runs=[look.run for look in looks if look.run is not None],
    )


def _looks(found: Found, point: Point) -> list[Look]:
    return [look for look in found.log.looks if found.space.point_of(look.setup) == point]


def _speed(look: Look) -> float | Absent:
    return look.samples_per_s


def _efficiency(look: Look) -> float | Absent:
    return look.samples_per_j


def _across(found: Found, looks: Sequence[Look], value: Callable[[Look], float | Absent]) -> Quantity | Absent:
    """The median over launches; absent with the first reason if there is none. Two launches have their interval from
    the spread of all launches of the search."""
    values = [value(look) for look in looks]
    good = [each for each in values if not isinstance(each, Absent)]
    if not good:
        return next((each for each in values if isinstance(each, Absent)), Absent("never measured"))
    if len(good) == 1:
        return Quantity.without_interval(good[0], why="one launch has no interval")
    if len(good) >= FEWEST_ROUNDS:
        return median_of_rounds(good)
    spread = Spread.of(_repeats(found, value))
    if spread is None:
        middle = math.exp(math.fsum(math.log(each) for each in good) / len(good))
        return Quantity.without_interval(middle, n=len(good), why=too_few(len(good)))
    return spread.around([math.log(each) for each in good])


def _repeats(found: Found, value: Callable[[Look], float | Absent]) -> Iterable[Sequence[float]]:
    """The logs of the launches of each setup."""
    groups: dict[str, list[float]] = {}
    for look in found.log.looks:
        each = value(look)
        if not isinstance(each, Absent):
            groups.setdefault(words_of(look.setup), []).append(math.log(each))
    return groups.values()


def _largest(values: Sequence[int | Absent]) -> int | Absent:
    good = [value for value in values if not isinstance(value, Absent)]
    return max(good) if good else next((value for value in values if isinstance(value, Absent)), Absent("not measured"))
