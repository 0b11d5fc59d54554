"""Why the best setup is better: the part of each axis that it changes.

    added      default with the axis changed   over   default
    removed    best                            over   best with the axis as in the default

The mean of both in log space is the Shapley value where only pairs of axes interact, from two setups for each axis
instead of all combinations. What all parts do not explain is `together`. The best over the default is known from the
finals; every other ratio comes from the model, which has seen all looks. Where one of both setups was never run, it is
marked as estimated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.measure.ratios import LEAST_DIFFERENCE
from deepstone.results.quantity import Quantity
from deepstone.results.tune import AxisEffect, AxisRatio, Why
from deepstone.tuner.model import Model
from deepstone.tuner.space import Point, Space

_REACH: Final = 1.96  # standard deviations of a 95 % interval


class Explained(Struct, frozen=True, kw_only=True):
    why: list[Why]
    together: Quantity | Absent
    no_effect: list[AxisEffect]
    not_decided: list[str]


class Explainer(Struct, frozen=True, kw_only=True):
    """`looks`: how often a point was looked at with success."""

    space: Space
    model: Model
    looks: Callable[[Point], int]

    def pairs(self, best: Point) -> Iterator[tuple[str, Point, Point]]:
        """The ratios that an explanation needs: axis, above, below."""
        default = self.space.default
        for axis in self.space.changed(best):
            added = self.space.with_value(default, axis, self.space.value(best, axis))
            removed = self.space.with_value(best, axis, self.space.value(default, axis))
            for above, below in ((added, default), (best, removed)):
                if above != below and not self.space.why_not(above) and not self.space.why_not(below):
                    yield axis, above, below

    def wanted(self, best: Point, hopeless: Callable[[Point], bool], *, only_new: bool = False) -> Point | None:
        """The setup whose look would tell most: one that was never run, else one end of the least certain ratio."""
        open_: list[tuple[bool, float, Point]] = []
        for _, above, below in self.pairs(best):
            sd = self.model.contrast(above, below)[1]
            for point in (above, below):
                if point not in (best, self.space.default) and not hopeless(point):
                    open_.append((self.looks(point) == 0, sd, point))
        if not open_:
            return None
        is_new, sd, point = max(open_, key=lambda each: each[:2])
        return point if is_new or (sd > LEAST_DIFFERENCE / _REACH and not only_new) else None

    def explain(self, best: Point, gain: Quantity) -> Explained:
        """`gain`: of the best over the default, by the finals."""
        why = [self._why(axis, best, gain) for axis in self.space.changed(best)]
        why.sort(key=lambda each: -abs(math.log(each.contribution.median)))
        no_effect, not_decided = self._unchanged(best)
        return Explained(why=why, together=_together(gain, why), no_effect=no_effect, not_decided=not_decided)

    def _why(self, axis: str, best: Point, gain: Quantity) -> Why:
        default = self.space.default
        added_to = self.space.with_value(default, axis, self.space.value(best, axis))
        without = self.space.with_value(best, axis, self.space.value(default, axis))
        added, removed = (
            AxisRatio(ratio=gain, estimated=False) if pair == (best, default) else self._ratio(*pair)
            for pair in ((added_to, default), (best, without))
        )
        known = [each.ratio for each in (added, removed) if not isinstance(each, Absent)]
        return Why(
            axis=axis,
            default=self.space.value(default, axis),
            best=self.space.value(best, axis),
            contribution=_geometric_mean(known)
            if known
            else Quantity.without_interval(1.0, n=0, why="neither can run"),
            added=added,
            removed=removed,
        )

    def _ratio(self, above: Point, below: Point) -> AxisRatio | Absent:
        for point in (above, below):
            if (reason := self.space.why_not(point)) is not None:
                return Absent(f"cannot run: {reason}")
        if above == below:
            return Absent("it has no meaning without the other changes")
        counts = [self.looks(point) for point in (above, below)]
        return AxisRatio(ratio=self._quantity(above, below), estimated=min(counts) == 0)

    def _quantity(self, above: Point, below: Point) -> Quantity:
        mean, sd = self.model.contrast(above, below)
        reach = _REACH * sd
        return Quantity.of(
            median=math.exp(mean),
            low=math.exp(mean - reach),
            high=math.exp(mean + reach),
            n=min(self.looks(above), self.looks(below)),
        )

    def _unchanged(self, best: Point) -> tuple[list[AxisEffect], list[str]]:
        """Of the axes that the best setup leaves alone: which do not matter, and about which nothing can be said."""
        no_effect: list[AxisEffect] = []
        not_decided: list[str] = []
        changed = set(self.space.changed(best))
        for axis in self.space.axes:
            if axis.name in changed or axis.name == "batch":
                continue
            others = [self.space.with_value(best, axis.name, value) for value in axis.values]
            others = [point for point in dict.fromkeys(others) if point != best and not self.space.why_not(point)]
            ratios = [self._quantity(point, best) for point in others]
            if not ratios:
                continue
            top = max(ratios, key=lambda ratio: ratio.median)
            margin = 1 + LEAST_DIFFERENCE
            if all(ratio.low >= 1 / margin and ratio.high <= margin for ratio in ratios):
                no_effect.append(AxisEffect(axis=axis.name, value=self.space.value(best, axis.name), ratio=top))
            elif any(ratio.high > margin for ratio in ratios):
                not_decided.append(axis.name)
        return no_effect, not_decided


def _geometric_mean(ratios: Sequence[Quantity]) -> Quantity:
    """With the errors of all added up, as they may depend on each other."""

    def mean(values: Sequence[float]) -> float:
        return math.exp(math.fsum(math.log(value) for value in values) / len(values))

    return Quantity.of(
        median=mean([ratio.median for ratio in ratios]),
        low=mean([ratio.low for ratio in ratios]),
        high=mean([ratio.high for ratio in ratios]),
        n=min(ratio.n for ratio in ratios),
    )


def _together(gain: Quantity, why: Sequence[Why]) -> Quantity | Absent:
    """What is left of the gain; the interval from the ends of all parts."""
    if len(why) == 1:
        return Absent("there is one change only")
    parts = [each.contribution for each in why if each.contribution.has_interval]
    if not parts:
        return Absent("no part of it is known")
    return Quantity.of(
        median=gain.median / math.prod(part.median for part in parts),
        low=gain.low / math.prod(part.high for part in parts),
        high=gain.high / math.prod(part.low for part in parts),
        n=min(gain.n, *(part.n for part in parts)),
        no_interval=gain.no_interval,
    )
