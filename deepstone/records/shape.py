"""The small language in which a record's checks are written.

A check takes a value and where it stands in the record; it returns, or refuses with that place in the message.
Checks other than `plain` may trust that what they see is plain JSON with finite numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import NoReturn, TypeAlias, cast

from deepstone.errors import RefusedInputError, nearest
from deepstone.records.schema import MAX_INTEGER, MAX_NESTING, is_absent

# Where a value stands: the way to what holds it, and its key or position there. Spelled out only in a message.
Place: TypeAlias = "tuple[Place, str | int] | None"
Check: TypeAlias = Callable[[object, Place], None]

_UNPRINTABLE = re.compile("[\0\ud800-\udfff]")
_PLAIN_KEY = re.compile(r"[^\x00-\x1f\x7f/\\\ud800-\udfff]{1,200}")
_READABLE_KEY = re.compile(r"[A-Za-z0-9_.-]{1,60}")


def refuse(where: Place, must: str, value: object) -> NoReturn:
    refuse_because(where, f"must be {must}, not {shown(value)}")


def refuse_because(where: Place, why: str) -> NoReturn:
    raise RefusedInputError(f"{spelled(where) or 'record'}: {why}")


def shown(value: object) -> str:
    """A value as a message can carry it: short, and printable whatever it holds."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:40] + "…")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) <= MAX_INTEGER else "a number of more than 63 bits"
    if isinstance(value, float):
        return str(value)
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else f"a {type(value).__name__}"


def spelled(where: Place) -> str:
    """`a.b[2]`; a key that is no ordinary word is shown in quotes."""
    if where is None:
        return ""
    parent, key = where
    if isinstance(key, int) or not _READABLE_KEY.fullmatch(key):
        return f"{spelled(parent)}[{shown(key)}]"
    return f"{spelled(parent)}.{key}" if parent else key


def plain(value: object, where: Place = None, depth: int = 0) -> None:
    """JSON without null, without numbers that are none, without text that cannot be written, and not too deep."""
    if isinstance(value, dict):
        _plain_object(cast(dict[object, object], value), where, depth + 1)
    elif isinstance(value, list):
        _plain_list(cast(list[object], value), where, depth + 1)
    elif isinstance(value, str):
        if _UNPRINTABLE.search(value):
            refuse(where, "text without NUL and without lone surrogates", value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            refuse(where, "a finite number", value)
    elif isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            refuse(where, "a number of at most 63 bits", value)
    else:
        refuse(where, "text, a number, true, false, a list or an object", value)


def _plain_object(items: dict[object, object], where: Place, depth: int) -> None:
    _not_too_deep(depth)
    for key, value in items.items():
        # Redaction leaves keys alone, so a key must not be able to hold a path.
        if not isinstance(key, str) or not _is_plain_key(key):
            refuse_because(where, f"has the key {shown(key)}; a key is a short name without slashes")
        if not _plain_leaf(value):
            plain(value, (where, key), depth)
    if "absent" in items:
        _absent(items, where)


def _plain_list(items: list[object], where: Place, depth: int) -> None:
    _not_too_deep(depth)
    if _all_floats(items) and math.isfinite(sum(cast(list[float], items))):
        return  # nearly everything in a record is a sample; a sum is finite only if all of it is
    for position, value in enumerate(items):
        if not _plain_leaf(value):
            plain(value, (where, position), depth)


@lru_cache(maxsize=1024)  # records have nearly all of their keys in common
def _is_plain_key(key: str) -> bool:
    return bool(_PLAIN_KEY.fullmatch(key))


def _plain_leaf(value: object) -> bool:
    """True for a good text or number, told without its place, which costs more than the look; else `plain` tells."""
    if type(value) is str:
        return not _UNPRINTABLE.search(value)
    if type(value) is int:
        return -MAX_INTEGER <= value <= MAX_INTEGER
    return type(value) is float and math.isfinite(value)


def _all_floats(items: list[object]) -> bool:
    return set(map(type, items)) == {float}


def _not_too_deep(depth: int) -> None:
    if depth > MAX_NESTING:
        raise RefusedInputError(f"record: is nested more than {MAX_NESTING} levels deep")


def _absent(items: Mapping[object, object], where: Place) -> None:
    reason = items["absent"]
    if len(items) != 1 or not isinstance(reason, str) or not reason:
        refuse_because(where, "what is absent must be exactly {'absent': reason}")


def as_object(value: object, where: Place) -> dict[str, object]:
    if not isinstance(value, dict) or is_absent(cast(object, value)):
        refuse(where, "an object", cast(object, value))
    return cast(dict[str, object], value)


def as_list(value: object, where: Place) -> list[object]:
    if not isinstance(value, list):
        refuse(where, "a list", value)
    return cast(list[object], value)


def any_object(value: object, where: Place) -> None:
    as_object(value, where)


def fields(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """An object with these keys and no others."""
    known = {**required, **(optional or {})}

    def check(value: object, where: Place) -> None:
        items = as_object(value, where)
        for key in required:
            if key not in items:
                refuse_because((where, key), "is missing")
        for key, item in items.items():
            if key not in known:
                refuse_because((where, key), f"is not a key of a record; {nearest(key[:60], known)}")
            known[key](item, (where, key))

    return check


def table(values: Check, *, suffix: str = "") -> Check:
    """An object with any keys (that end so), all of whose values pass."""

    def check(value: object, where: Place) -> None:
        for key, item in as_object(value, where).items():
            if not key.endswith(suffix):
                refuse_because((where, key), f"the name must end in {suffix}, its unit")
            values(item, (where, key))

    return check


def list_of(item_check: Check, *, least: int = 0) -> Check:
    def check(value: object, where: Place) -> None:
        items = as_list(value, where)
        if len(items) < least:
            refuse_because(where, f"must have at least {least} item")
        for position, item in enumerate(items):
            item_check(item, (where, position))

    return check


def times(value: object, where: Place) -> None:
    """A list of seconds; apart from `list_of(number())` because it is the long one."""
    items = as_list(value, where)
    if _all_floats(items) and min(cast(list[float], items)) >= 0:
        return
    check = number()
    for position, item in enumerate(items):
        check(item, (where, position))


def or_absent(present: Check) -> Check:
    def check(value: object, where: Place) -> None:
        if not is_absent(value):
            present(value, where)

    return check


def text(value: object, where: Place) -> None:
    if not isinstance(value, str):
        refuse(where, "text", value)


def some_text(value: object, where: Place) -> None:
    if not isinstance(value, str) or not value:
        refuse(where, "text that is not empty", value)


def text_like(pattern: re.Pattern[str], what: str) -> Check:
    def check(value: object, where: Place) -> None:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            refuse(where, what, value)

    return check


def one_of(choices: Iterable[str]) -> Check:
    known = tuple(choices)

    def check(value: object, where: Place) -> None:
        if not isinstance(value, str) or value not in known:
            refuse(where, "one of " + ", ".join(known), value)

    return check


def whole(least: int | None = 0) -> Check:
    what = "a whole number" if least is None else f"a whole number of at least {least}"

    def check(value: object, where: Place) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
            refuse(where, what, value)

    return check


def number(least: float | None = 0) -> Check:
    what = "a finite number" if least is None else f"a finite number of at least {least}"

    def check(value: object, where: Place) -> None:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            refuse(where, "a finite number", value)
        if least is not None and value < least:
            refuse(where, what, value)

    return check
