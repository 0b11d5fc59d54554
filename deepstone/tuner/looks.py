"""What the looks of a search say together: values by point, rounds of the finals, and who is out."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.results.tune import Look
from deepstone.tuner.finals import Contest, Spread
from deepstone.tuner.space import Point, Space
from deepstone.tuner.wanted import Wanted


class Looks(Struct, frozen=True, kw_only=True):
    space: Space
    wanted: Wanted
    all: Sequence[Look]

    def points(self) -> Iterator[tuple[Look, Point]]:
        """Every look at a point of this space; an earlier call may have looked at others."""
        for look in self.all:
            if (point := self.space.point_of(look.setup)) is not None:
                yield look, point

    def values(self) -> Iterator[tuple[Look, Point, float]]:
        """The logs of what is sought; a look that failed, or broke a limit, has none."""
        for look, point in self.points():
            if (value := self.wanted.value(look)) is not None:
                yield look, point, value

    def spread(self) -> Spread | None:
        """Of what is sought, over all launches of the same setup."""
        return Spread.of(_grouped((point, value) for _, point, value in self.values()).values())

    def failed(self) -> set[Point]:
        return {point for look, point in self.points() if isinstance(look.samples_per_s, Absent)}

    def too_slow(self, points: Sequence[Point], counts: Callable[[Point], bool]) -> set[Point]:
        """Those that are slower than the objective allows, by the means of all looks. `counts`: whether a setup may be
        the fastest, which the others are held against; one beyond the limits is not."""
        slowdown = self.wanted.objective.slowdown
        if slowdown is None:
            return set()
        speeds = _grouped(
            (point, math.log(look.samples_per_s))
            for look, point, _ in self.values()
            if not isinstance(look.samples_per_s, Absent)
        )
        means = {point: math.fsum(values) / len(values) for point, values in speeds.items()}
        fastest = max((mean for point, mean in means.items() if counts(point)), default=-math.inf)
        return {point for point in points if point in means and means[point] < fastest - math.log(slowdown)}

    def rounds(self, contest: Contest) -> dict[int, Mapping[Point, float]]:
        """What was measured in the finals, by the number of the round. One that the end of the time cut off does not
        count."""
        found: dict[int, dict[Point, float]] = {number + 1: {} for number in range(contest.rounds)}
        for look, point, value in self.values():
            if look.kind == "final" and look.round in found:
                found[look.round][point] = math.exp(value)
        default = contest.points[0]
        standing = {point for point in contest.points if not self.is_out(point)}
        standing |= {default} if self.ran_in_search(default) else set()  # without it, a round says nothing
        return {number: values for number, values in found.items() if values and values.keys() >= standing}

    def is_settled(self, point: Point, round: int) -> bool:
        """Whether nothing is left to measure of a finalist in a round."""
        has_value = any(look.kind == "final" and look.round == round and at == point for look, at, _ in self.values())
        return has_value or self.is_out(point)

    def is_out(self, point: Point) -> bool:
        """Whether a finalist failed, or broke a limit, and is not measured again. One that ran in the search has a
        second chance: something may have disturbed one launch."""
        failures = sum(
            look.kind == "final" and self.wanted.value(look) is None and at == point and not self.is_cut_off(look)
            for look, at in self.points()
        )
        return failures > (1 if self.ran_in_search(point) else 0)

    def ran_in_search(self, point: Point) -> bool:
        return any(look.kind != "final" and at == point for look, at, _ in self.values())

    def is_cut_off(self, look: Look) -> bool:
        return is_cut_off(look, self.wanted.budget_s)

    def failed_in_finals(self) -> bool:
        """Whether a finalist, which ran in the search, failed: that decides nothing about it."""
        return any(
            look.kind == "final" and look.outcome != "ok" and at != self.space.default and self.is_out(at)
            for look, at in self.points()
        )

    def fit(
        self,
        fit: Callable[[list[Point], list[float], list[float]], None],
        *,
        without: Collection[str] = (),
        finals_count: bool = False,
    ) -> dict[Point, int]:
        """Fit a model to all values but those of these kinds of looks, with the number of each look as its time.
        `finals_count`: of a setup that was in the finals, what they measured counts, and not the search, which may have
        met another load of the machine. Returns how many looks each point has."""
        in_finals = {point for look, point, _ in self.values() if look.kind == "final" and finals_count}
        seen: list[tuple[Point, float, float]] = []
        for number, look in enumerate(self.all):
            point, value = self.space.point_of(look.setup), self.wanted.value(look)
            if point is None or value is None or look.kind in without:
                continue
            if look.kind == "final" or point not in in_finals:
                seen.append((point, value, float(number)))
        if seen:
            fit([point for point, *_ in seen], [value for _, value, _ in seen], [number for *_, number in seen])
        counts: dict[Point, int] = {}
        for point, *_ in seen:
            counts[point] = counts.get(point, 0) + 1
        return counts


def is_cut_off(look: Look, budget_s: float) -> bool:
    """Whether the end of the time ended a launch; it did not fail."""
    return look.outcome == "timeout" and look.began_s + look.took_s >= budget_s


def _grouped(values: Iterable[tuple[Point, float]]) -> dict[Point, list[float]]:
    found: dict[Point, list[float]] = {}
    for point, value in values:
        found.setdefault(point, []).append(value)
    return found
