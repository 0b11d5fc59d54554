"""Rewrites msgspec's errors about a file: the place, the expected value, and the nearest known name."""

from __future__ import annotations

import re
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from deepstone.errors import nearest
from deepstone.results.checks import TIME_IN_WORDS
from deepstone.results.parts import AT
from deepstone.results.plain import Place, shown, spelled

_STEP: Final = re.compile(r"\[(\d+)\]|\.([^.\[]+)")
_EXPECTED: Final = re.compile(r"Expected `([^`]*)`(.*?)(?:, got `[^`]*`)?$")
_WORDS: Final = {
    "int": "a whole number",
    "float": "a finite number",
    "int | float": "a finite number",
    "str": "text",
    "bool": "true or false",
    "object": "an object",
    "int | float | object": "a finite number or an object",
    "array": "a list",
    "int | str": "text or a whole number",
    "bool | int | float | str": "text, a number, true or false",
}
_PATTERNS: Final = {
    "[0-9a-f]{64}\\\\Z": "64 hexadecimal digits",
    "[0-9a-f]{64})?": "64 hexadecimal digits, or empty",
    "[0-9a-f]{20}": "20 hexadecimal digits, a dash and the attempt",
    "T[0-9]{2}": TIME_IN_WORDS,
    "SIG": "a signal's name like SIGSEGV",
}


def rewritten(error: msgspec.ValidationError, content: object, kind: Any, *, whole: str = "") -> str:
    """Return a message such as `published.bound: must be one of about, over, not 'ovr'`. `kind`: the type that
    `content` should have; `whole`: its name.

    msgspec's message ends with its place, once for each of our own types on the way to it, the innermost first.
    """
    what, *places = str(error).split(AT)
    steps = [
        int(index) if index else key for place in reversed(places) for index, key in _STEP.findall(place.rstrip("`"))
    ]
    name = re.search(r"field `(.*)`", what)
    if name and "missing" in what:
        return f"{_where([*steps, name[1]])}: is missing"
    if name:
        return f"{_where([*steps, name[1]])}: is not a known key; {nearest(name[1], _keys(kind, steps))}"
    where = _where(steps) or whole
    message = _message(what, shown(_at(content, steps)), _hint(kind, steps))
    return f"{where}: {message}" if where else message


def _message(what: str, value: str, hint: Any) -> str:
    if what.startswith("Invalid enum value"):
        return f"must be one of {', '.join(map(str, _choices(hint)))}, not {value}"
    expected = _EXPECTED.match(what)
    return f"must be {_expected(expected)}, not {value}" if expected else what


def _expected(match: re.Match[str]) -> str:
    kind, more = match[1].removesuffix(" | null"), match[2]
    words = _WORDS.get(kind, kind)
    if "regex" in more:
        return next((text for pattern, text in _PATTERNS.items() if pattern in more), words)
    if kind == "str" and "length" in more:
        return "text that is not empty"
    least = re.search(r">= (\d+)", more)
    return f"{words} of at least {least[1]}" if least else words


def _hint(kind: Any, steps: list[str | int]) -> Any:
    """Return the declared type at a place; the search stops at positions and keys of tables."""
    hint = kind
    for step in steps:
        struct = _struct(hint)
        names = (
            {} if struct is None else dict(zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True))
        )
        if step in names:
            hint = get_type_hints(struct)[names[str(step)]]
    return hint


def _struct(hint: Any) -> type[msgspec.Struct] | None:
    """Return the first of our types in a declaration."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    return next((found for part in get_args(hint) if (found := _struct(part)) is not None), None)


def _keys(kind: Any, steps: list[str | int]) -> tuple[str, ...]:
    struct = _struct(_hint(kind, steps))
    return () if struct is None else struct.__struct_encode_fields__


def _choices(hint: Any) -> tuple[str | int, ...]:
    """Return the closed list in a declaration."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return next((found for part in get_args(hint) if (found := _choices(part))), ())


def _where(steps: list[str | int]) -> str:
    where: Place = None
    for step in steps:
        where = (where, step)
    return spelled(where)


def _at(content: Any, steps: list[str | int]) -> Any:
    for step in steps:
        try:
            content = content[step]
        except (KeyError, IndexError, TypeError):
            break
    return content
