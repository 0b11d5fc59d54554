"""Turns `AXIS=VALUE` words into requests: one value for every axis, one request for every combination of values.

`@FILE` stands for the words of a setup that a file holds, as `deepstone tune` writes it:

    [setup]
    framework = "jax"
    precision = "bf16-mixed"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Final, TypeAlias, cast

from deepstone.errors import UsageError, nearest, shown
from deepstone.setups.axes import AXES, Value
from deepstone.setups.world import resolve_batch

Request: TypeAlias = Mapping[str, Value]  # every axis has a value, `auto` included
Choices: TypeAlias = dict[str, list[Value]]

_SETUP: Final = "setup"  # the table of a setup's file
_MOST_BYTES: Final = 2**20


def parse_words(words: Iterable[str]) -> Choices:
    """Parse `["batch=8,32", "layout=nhwc"]` into lists of checked values. Raises UsageError for anything else."""
    choices: Choices = {}
    for word in expand_files(words):
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


def expand_files(words: Iterable[str]) -> list[str]:
    """Put the words of its file in the place of each `@FILE`. A word that is also given replaces that of the file, and
    that of a later file replaces that of an earlier one. Raises UsageError if a file cannot be read."""
    given = list(words)
    plain = [word for word in given if not word.startswith("@")]
    named = {word.partition("=")[0] for word in plain}
    of_files: dict[str, str] = {}
    for word in given:
        if word.startswith("@"):
            of_files |= {name: text for name, text in _read_setup(word[1:]).items() if name not in named}
    return [*(f"{name}={text}" for name, text in of_files.items()), *plain]


def _read_setup(path: str) -> dict[str, str]:
    import tomllib

    try:
        with Path(path).expanduser().open("rb") as file:
            table = tomllib.loads(file.read(_MOST_BYTES).decode())
    except OSError as error:
        only = "`deepstone tune` writes best.toml only for a setup that is better than the default"
        raise UsageError(f"@{shown(path)}: cannot be read: {error.strerror}; {only}") from None
    except ValueError as error:  # the message of tomllib names the line
        raise UsageError(f"@{shown(path)}: is no TOML: {shown(str(error))}") from None
    setup: object = table.get(_SETUP)
    if not isinstance(setup, dict):
        raise UsageError(f"@{shown(path)}: has no table [{_SETUP}] with the axes of a setup")
    found: dict[str, str] = {}
    for name, value in cast(dict[str, object], setup).items():
        if name not in AXES:
            raise UsageError(f"@{shown(path)}: {shown(name)}: no such axis; {nearest(name, AXES)}")
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise UsageError(f"@{shown(path)}: {name}: a value is text or a whole number")
        try:
            AXES[name].parse(str(value))
        except UsageError as error:
            raise UsageError(f"@{shown(path)}: {error}") from None
        found[name] = str(value)
    return found


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
