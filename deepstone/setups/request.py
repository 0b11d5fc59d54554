"""Turns `AXIS=VALUE` words into requests: one value for every axis, one request for every combination of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import TypeAlias

from deepstone.errors import UsageError, nearest, shown
from deepstone.setups.axes import AXES, Value
from deepstone.setups.world import resolve_batch

Request: TypeAlias = Mapping[str, Value]  # every axis has a value, `auto` included
Choices: TypeAlias = dict[str, list[Value]]


def parse_words(words: Iterable[str]) -> Choices:
    """Parse `["batch=8,32", "layout=nhwc"]` into lists of checked values. Raises UsageError for anything else."""
    choices: Choices = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"{word!r} is not AXIS=VALUE, as in batch=32; `deepstone axes` lists the axes")
        if name not in AXES:
            raise UsageError(f"{shown(name)}: no such axis; {nearest(name, AXES)}")
        if name in choices:
            raise UsageError(f"{name}: given twice; write {name}=A,B for several values")
        values = [AXES[name].parse(part.strip()) for part in text.split(",")]
        if len(set(values)) != len(values):
            raise UsageError(f"{shown(word)}: a value is listed twice")
        choices[name] = values
    return choices


def expand(choices: Choices) -> list[Request]:
    """Return every combination, the last given axis changing fastest; other axes keep their default."""
    names = list(choices)
    return [complete(dict(zip(names, values, strict=True))) for values in product(*choices.values())]


def complete(given: Mapping[str, Value]) -> Request:
    """All axes in their declared order, defaults filled in; `batch` is that of the whole job."""
    request = {name: given.get(name, axis.default) for name, axis in AXES.items()}
    return {**request, "batch": resolve_batch(request["batch"], request)}


def as_words(request: Request) -> list[str]:
    """Return the shortest words for this request: axes at their default are left out."""
    return [f"{name}={value}" for name, value in request.items() if value != AXES[name].default]


def changed(*options: tuple[str, float, float]) -> list[str]:
    """Return the options (name, value, default) that differ from their default, as words of a command."""
    return [word for name, value, default in options if value != default for word in (name, f"{value:.12g}")]
