"""The points that a sweep spans: all combinations, or one factor at a time. Counted without making them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeAlias

from deepstone.setups.axes import AXES, Value
from deepstone.studies.study import Sweep
from deepstone.studies.values import Here, count, resolve

Given: TypeAlias = dict[str, Value]


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """Values of the axes that the sweep names, and which of them differ from the first of their list."""

    given: Given
    changed: Given


def count_points(sweep: Sweep, here: Here) -> int:
    """For all models together, before anything is excluded."""
    counts = [count(values, here) for values in sweep.axes.values()]
    by_model = prod(counts) if sweep.vary == "grid" else 1 + sum(max(0, each - 1) for each in counts)
    return by_model * max(1, len(sweep.models))


def points(sweep: Sweep, here: Here) -> Iterator[Point]:
    """The base first, the last axis changing fastest. Nothing where an axis has no value here."""
    axes = {axis: resolve(values, here) for axis, values in sweep.axes.items()}
    if any(not values for values in axes.values()):
        return
    base = {axis: values[0] for axis, values in axes.items()}
    if sweep.vary == "grid":
        for values in product(*axes.values()):
            given = dict(zip(axes, values, strict=True))
            yield Point(given=given, changed={axis: given[axis] for axis in axes if given[axis] != base[axis]})
        return
    yield Point(given=base, changed={})
    for axis, values in axes.items():
        for value in values[1:]:
            yield Point(given={**base, axis: value}, changed={axis: value})


def is_excluded(sweep: Sweep, model: str, given: Mapping[str, Value], here: Here) -> bool:
    return any(
        all(_matches(axis, wanted, _value(axis, model, given), here) for axis, wanted in excluded.items())
        for excluded in sweep.exclude
    )


def _value(axis: str, model: str, given: Mapping[str, Value]) -> Value:
    return model if axis == "model" else given.get(axis, AXES[axis].default)


def _matches(axis: str, wanted: Value, value: Value, here: Here) -> bool:
    if wanted == "cores" and axis != "model":
        return value == here.cores
    if axis == "framework" and "@" not in str(wanted):  # any version of it
        return str(value).partition("@")[0] == wanted
    return value == wanted
