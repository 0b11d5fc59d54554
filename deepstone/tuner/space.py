"""The space of a search: every setup that may run here, as points with one value for each axis.

A point is dropped if a rule refuses it, if its analytic need does not fit, or if it is another spelling of a point that
is there. A space with more combinations than `MOST` is not listed: the search then knows a random part of it, all
points near the default of each framework, and the neighbours of any point.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, product
from math import prod
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from deepstone.errors import UsageError
from deepstone.results.tune import SameLevel
from deepstone.setups.axes import AUTO, AXES, FRAMEWORKS, Axis, Value
from deepstone.setups.request import Choices, Request, complete
from deepstone.setups.rules import broken_rule
from deepstone.setups.tuning import Alters, Facts, NotTuned, Tuning, meaning_of_auto

MOST: Final = 6_000  # combinations that are listed one by one
_SAMPLED: Final = 2_500
_ALLOWED: Final[Mapping[SameLevel, tuple[Alters, ...]]] = {
    "exact": ("order",),
    "close": ("order", "rounding"),
    "any": ("order", "rounding", "state", "batch"),
}

Point: TypeAlias = tuple[Value, ...]  # a value for each axis of the space, in their order


class SearchAxis(Struct, frozen=True, kw_only=True):
    """An axis that is searched; the first value is the default's. `named`: the user listed the values."""

    name: str
    values: tuple[Value, ...]
    rank: int
    ordered: bool
    named: bool = False


@dataclass(frozen=True, kw_only=True)
class Space:
    """`base`: the axes that the user gave one value. `refusal`: why a request with known framework and device does not
    run. `fixed`: why an axis is not searched."""

    axes: tuple[SearchAxis, ...]
    base: Mapping[str, Value]
    facts: Facts
    fixed: Mapping[str, str]
    refusal: Callable[[Request], str | None]
    seed: int = 0
    _refused: dict[Point, str | None] = field(default_factory=dict[Point, "str | None"])
    _points: dict[frozenset[tuple[str, Value]], Point | None] = field(
        default_factory=dict[frozenset[tuple[str, Value]], "Point | None"]
    )

    @property
    def default(self) -> Point:
        return tuple(axis.values[0] for axis in self.axes)

    def given(self, point: Point) -> dict[str, Value]:
        """The words of a point: what the user gave and the values of the space, without axes at their default. One that
        the user began elsewhere is named in any case."""
        words = {**self.base, **{axis.name: value for axis, value in zip(self.axes, point, strict=True)}}
        begun = {axis.name: axis.values[0] for axis in self.axes}
        return {
            name: value
            for name, value in words.items()
            if value != AXES[name].default or value != begun.get(name, value)
        }

    def request(self, point: Point) -> Request:
        return complete(self.given(point))

    def point_of(self, given: Mapping[str, Value]) -> Point | None:
        """The point with these words; None if it is not in the space."""
        key = frozenset(given.items())
        if key not in self._points:
            request, plain = complete(given), complete(self.base)
            searched = {axis.name: axis.values for axis in self.axes}
            fits = all(
                value in searched[name] if name in searched else value == plain[name] for name, value in request.items()
            )
            point = tuple(request[axis.name] for axis in self.axes)
            self._points[key] = self.canonical(point) if fits else None
        return self._points[key]

    def framework(self, point: Point) -> str:
        """The framework of a point, with `auto` resolved."""
        asked = str(self.value(point, "framework"))
        return self.facts.frameworks[0] if asked == AUTO and self.facts.frameworks else asked

    def value(self, point: Point, axis: str) -> Value:
        for each, value in zip(self.axes, point, strict=True):
            if each.name == axis:
                return value
        return self.base.get(axis, AXES[axis].default)

    def changed(self, point: Point, base: Point | None = None) -> list[str]:
        """The axes in which a point differs from the default, or from another."""
        other = self.default if base is None else base
        return [axis.name for axis, a, b in zip(self.axes, point, other, strict=True) if a != b]

    def slow_to_start(self, point: Point) -> tuple[str, ...]:
        """The axes whose values make a start longer, as one that compiles."""
        tunings = ((axis.name, value, AXES[axis.name].tuning) for axis, value in zip(self.axes, point, strict=True))
        return tuple(name for name, value, each in tunings if isinstance(each, Tuning) and each.startup_s.get(value))

    def quicker(self, point: Point) -> Point:
        """The same point with the defaults of these axes."""
        for name in self.slow_to_start(point):
            point = self.with_value(point, name, self.value(self.default, name))
        return point

    def with_value(self, point: Point, name: str, value: Value) -> Point:
        """The same point with another value of one axis, in its own spelling."""
        return self.canonical(
            tuple(value if axis.name == name else old for axis, old in zip(self.axes, point, strict=True))
        )

    @property
    def has_free_batch(self) -> bool:
        return any(axis.name == "batch" for axis in self.axes)

    def is_at_asked_batch(self, point: Point) -> bool:
        return self.value(point, "batch") == self.value(self.default, "batch")

    def at_asked_batch(self, point: Point) -> Point:
        """The same point at the default's batch; it may be one that cannot run."""
        if self.is_at_asked_batch(point):
            return point
        return self.with_value(point, "batch", self.value(self.default, "batch"))

    def canonical(self, point: Point) -> Point:
        """One spelling for every setup: `auto` for what `auto` means, the default where an axis means nothing."""
        request, means = self.request(point), meaning_of_auto(self.framework(point), self.facts)
        found: list[Value] = []
        for axis, value in zip(self.axes, point, strict=True):
            tuning, default = AXES[axis.name].tuning, axis.values[0]
            inactive = isinstance(tuning, Tuning) and not tuning.active(request, self.facts)
            is_default = default == AUTO and means.get(axis.name) == value
            found.append(default if inactive or is_default else value)
        return tuple(found)

    def resolved(self, point: Point) -> tuple[Value, ...]:
        """The values with `auto` as what it means, as far as that is known: alike values behave alike in every
        framework."""
        means = meaning_of_auto(self.framework(point), self.facts)
        return tuple(
            means.get(axis.name, value) if value == AUTO else value
            for axis, value in zip(self.axes, point, strict=True)
        )

    def why_not(self, point: Point) -> str | None:
        """Why a point is no setup of this space."""
        if point not in self._refused:
            request = self.request(point)
            device = "cpu" if self.facts.device == "cpu" else "gpu:0"
            known = {"framework": self.framework(point), "device": request["device"]}
            if known["device"] == AUTO:
                known["device"] = device
            self._refused[point] = self.refusal({**request, **known})
        return self._refused[point]

    def neighbours(self, point: Point) -> Iterator[Point]:
        """The setups that differ from a point in one axis."""
        for axis in self.axes:
            for value in axis.values:
                near = self.with_value(point, axis.name, value)
                if near != point and self.why_not(near) is None:
                    yield near

    def simpler(self, point: Point) -> Iterator[Point]:
        """The setups with one change fewer; the framework stays, because its axes depend on it."""
        default = self.default
        for axis, value, plain in zip(self.axes, point, default, strict=True):
            if value != plain and axis.name not in ("framework", "batch"):
                near = self.with_value(point, axis.name, plain)
                if self.why_not(near) is None:
                    yield near

    @cached_property
    def combinations(self) -> int:
        return sum(prod(len(axis.values) for axis in axes) for axes in self._by_framework())

    @property
    def is_listed(self) -> bool:
        """Whether `points` are all there are."""
        return self.combinations <= MOST

    @cached_property
    def _surveyed(self) -> tuple[tuple[Point, ...], Counter[str], int]:
        """The points, the reasons of the combinations that are none, and how many were looked at."""
        found: dict[Point, None] = {}
        reasons: Counter[str] = Counter()
        looked = 0
        for point in dict.fromkeys(self._listed() if self.is_listed else self._sampled()):
            looked += 1
            reason = self.why_not(point)
            if reason is None:
                found[point] = None
            else:
                reasons[reason] += 1
        return tuple(found), reasons, looked

    @property
    def points(self) -> tuple[Point, ...]:
        return self._surveyed[0]

    @property
    def excluded(self) -> Counter[str]:
        """By reason, of the combinations that were looked at."""
        return self._surveyed[1]

    @property
    def count(self) -> int:
        """How many setups there are; an estimate where they are not listed."""
        points, reasons, looked = self._surveyed
        if self.is_listed:
            return len(points)
        distinct = self._distinct_share * self.combinations
        return round(distinct * len(points) / max(1, looked)) if reasons else round(distinct)

    @cached_property
    def _distinct_share(self) -> float:
        """Of the combinations, how many are spelt in their own way."""
        drawn = [point for _, point in zip(range(500), self._draws(), strict=False)]
        return sum(self.canonical(point) == point for point in drawn) / max(1, len(drawn))

    def _by_framework(self) -> Iterator[tuple[SearchAxis, ...]]:
        """The axes for each framework, without values that it does not honour or that are what `auto` means in it."""
        names = next((axis.values for axis in self.axes if axis.name == "framework"), None)
        for name in names or (self.base.get("framework", AUTO),):
            framework = self.facts.frameworks[0] if name == AUTO and self.facts.frameworks else str(name)
            yield tuple(
                replace(axis, values=(name,) if axis.name == "framework" else self._values_in(framework, axis))
                for axis in self.axes
            )

    def _values_in(self, framework: str, axis: SearchAxis) -> tuple[Value, ...]:
        default, plain = axis.values[0], framework.partition("@")[0]
        if plain in FRAMEWORKS and plain not in AXES[axis.name].honoured_by:
            return (default,)
        same = meaning_of_auto(framework, self.facts).get(axis.name) if default == AUTO else None
        return tuple(value for value in axis.values if value != same)

    def _listed(self) -> Iterator[Point]:
        for axes in self._by_framework():
            for point in product(*(axis.values for axis in axes)):
                yield self.canonical(point)

    def _draws(self) -> Iterator[Point]:
        chance, frameworks = random.Random(self.seed), list(self._by_framework())
        while True:
            yield tuple(chance.choice(axis.values) for axis in chance.choice(frameworks))

    def _sampled(self) -> Iterator[Point]:
        """All points within two changes of each framework's default, then random ones."""
        for axes in self._by_framework():
            center = tuple(axis.values[0] for axis in axes)
            yield self.canonical(center)
            for number in (1, 2):
                for chosen in combinations(range(len(axes)), number):
                    for values in product(*(axes[place].values[1:] for place in chosen)):
                        near = list(center)
                        for place, value in zip(chosen, values, strict=True):
                            near[place] = value
                        yield self.canonical(tuple(near))
        for _, point in zip(range(_SAMPLED), self._draws(), strict=False):
            yield self.canonical(point)


def make_space(
    choices: Choices,
    facts: Facts,
    *,
    level: SameLevel = "close",
    refusal: Callable[[Request], str | None] = broken_rule,
    seed: int = 0,
) -> Space:
    """The space that remains free beside what the user gave. Raises UsageError for a list of values of an axis that is
    not tuned."""
    axes: list[SearchAxis] = []
    base: dict[str, Value] = {}
    fixed: dict[str, str] = {}
    chosen = _chosen(choices, facts)
    for axis in AXES.values():
        given, tuning = choices.get(axis.name), axis.tuning
        if given is not None and len(given) == 1:
            base[axis.name] = given[0]
            fixed[axis.name] = "you gave its value"
        elif isinstance(tuning, NotTuned):
            if given is not None:
                raise UsageError(f"{axis.name}: tune takes one value of it: {tuning.why}")
            fixed[axis.name] = tuning.why
        else:
            values = _values(axis, tuning, given, facts, level, chosen)
            if len(values) > 1:
                rank = tuning.rank[facts.device]
                named = given is not None
                axes.append(SearchAxis(name=axis.name, values=values, rank=rank, ordered=tuning.ordered, named=named))
            elif given is None:
                fixed[axis.name] = _why_one_value(axis, tuning, facts, level)
    ordered = tuple(sorted(axes, key=lambda axis: (axis.rank, axis.name)))
    return _without_idle_values(Space(axes=ordered, base=base, facts=facts, fixed=fixed, refusal=refusal, seed=seed))


def _without_idle_values(space: Space) -> Space:
    """Leave out values that no setup of the space has, unless the user listed them: what cannot run is not searched."""
    axes: list[SearchAxis] = []
    fixed = dict(space.fixed)
    for place, axis in enumerate(space.axes):
        used = {point[place] for point in space.points}
        values = tuple(value for value in axis.values if axis.named or value in used or value == axis.values[0])
        if len(values) > 1:
            axes.append(replace(axis, values=values))
            continue
        others = (space.with_value(space.default, axis.name, value) for value in axis.values[1:])
        reasons = (space.why_not(point) for point in others)
        fixed[axis.name] = next((reason for reason in reasons if reason), "its other values mean nothing here")
    if not space.points or tuple(axes) == space.axes:
        return space
    return Space(
        axes=tuple(axes), base=space.base, facts=space.facts, fixed=fixed, refusal=space.refusal, seed=space.seed
    )


def _chosen(choices: Choices, facts: Facts) -> Mapping[str, Value]:
    """What `auto` means, by axis, in the framework that the default has."""
    named = [str(value).partition("@")[0] for value in choices.get("framework", []) if value != AUTO]
    installed = [name for name in facts.frameworks if not named or name.partition("@")[0] in named]
    framework = next(iter([*installed, *named]), "")
    return {**meaning_of_auto(framework, facts), "framework": framework}


def _values(
    axis: Axis,
    tuning: Tuning,
    given: Sequence[Value] | None,
    facts: Facts,
    level: SameLevel,
    chosen: Mapping[str, Value],
) -> tuple[Value, ...]:
    """The default's value first: among those that the user lists, what `auto` means, else the first. What the user
    lists is searched whatever it alters: he asked for it."""
    if given is not None:
        plain = next((value for value in (axis.default, chosen.get(axis.name)) if value in given), given[0])
        first = given[0] if axis.name == "batch" or plain is None else plain
        return (first, *(value for value in given if value != first))
    others = [value for value in tuning.values(facts) if tuning.alters(value, facts) in _ALLOWED[level]]
    if axis.name == "framework":
        others = others[1:]  # the first is what `auto` takes
    return (axis.default, *(value for value in others if value != axis.default))


def _why_one_value(axis: Axis, tuning: Tuning, facts: Facts, level: SameLevel) -> str:
    if axis.name == "batch":
        return "another batch is other training; free it with a range, as batch=32..256"
    values = [value for value in tuning.values(facts) if value != axis.default]
    if axis.name == "framework":
        return "no other framework that is installed can run it"
    if values and not any(tuning.alters(value, facts) in _ALLOWED[level] for value in values):
        return f"its other values alter the training, which --same {level} does not allow"
    return "no other value of it is worth a look here"


def excluded_in_order(reasons: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    """The most frequent reasons first."""
    return sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
