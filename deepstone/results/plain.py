"""Parses untrusted JSON with limits on size, depth and number of values, and checks that it is plain."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NoReturn, TypeAlias, TypeGuard

from deepstone.errors import RefusedInputError

MAX_BYTES: Final = 64 * 2**20
MAX_NESTING: Final = 32
MAX_INTEGER: Final = 2**63 - 1
MAX_CONTAINERS: Final = 2_000_000  # 64 MiB of "{}," would otherwise become gigabytes of objects
MAX_DIGITS: Final = 19  # of a whole number; a longer one does not fit 63 bits
WRAPPER_LEVELS: Final = 2  # a record may be in a list, in an object with its checksum

_BRACKETS = b"[]{}"
_ALL_BUT_BRACKETS = bytes(sorted(set(range(256)) - set(_BRACKETS)))
_UNPRINTABLE = re.compile("[\0\ud800-\udfff]")
_PLAIN_KEY = re.compile(r"[^\x00-\x1f\x7f/\\\ud800-\udfff]{1,200}")
_READABLE_KEY = re.compile(r"[A-Za-z0-9_.-]{1,60}")

Pairs: TypeAlias = list[tuple[str, object]]
# The place of a value: the place of its container, and its key or position there. Formatted only for messages.
Place: TypeAlias = "tuple[Place, str | int] | None"


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Check for an object in parsed JSON, where keys are always text."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, (list, tuple))


def parse_json(data: bytes, *, limit_bytes: int = MAX_BYTES) -> object:
    """Parse JSON. Raises RefusedInputError for repeated keys, NaN or huge numbers, with their place."""
    if len(data) > limit_bytes:
        raise RefusedInputError(f"is larger than {limit_bytes / 2**20:.0f} MiB")
    check_structure(data)
    try:
        return json.loads(
            data.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_constant, parse_int=_bounded_int
        )
    except UnicodeDecodeError as error:
        raise RefusedInputError(f"byte {error.start + 1} is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise RefusedInputError(f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None


def check_structure(data: bytes) -> None:
    """Refuse deep nesting and too many containers by counting brackets, before any parser runs."""
    # An escaped quote does not end a string. Dropping escaped backslashes first leaves only real escapes of quotes.
    outside = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    brackets = b"".join(outside).translate(None, _ALL_BUT_BRACKETS)
    if brackets.count(b"[") + brackets.count(b"{") > MAX_CONTAINERS:
        raise RefusedInputError(f"holds more than {MAX_CONTAINERS:,} lists and objects")
    deepest, depth = MAX_NESTING + WRAPPER_LEVELS, 0
    for bracket in brackets:
        depth += 1 if bracket in b"[{" else -1
        if depth > deepest:
            raise RefusedInputError(f"is nested more than {MAX_NESTING} levels deep")


def _object(pairs: Pairs) -> dict[str, object]:
    items = dict(pairs)
    if len(items) != len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for at, key in enumerate(keys) if key in keys[:at])
        raise RefusedInputError(f"holds the key {shown(repeated)} twice in one object")
    return items


def _no_constant(name: str) -> NoReturn:
    raise RefusedInputError(f"holds {name}, which is not a number of JSON")


def _bounded_int(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise RefusedInputError(f"holds a whole number of more than {MAX_DIGITS} digits")
    return int(digits)


def check_plain(value: object, where: Place = None, depth: int = 0) -> None:
    """Refuse null, NaN, text that cannot be encoded, and deep nesting."""
    if is_object(value):
        _check_object(value, where, depth + 1)
    elif is_list(value):
        _check_list(value, where, depth + 1)
    elif isinstance(value, str):
        if _UNPRINTABLE.search(value):
            refuse(where, f"must be text without NUL and without lone surrogates, not {shown(value)}")
    elif isinstance(value, float):
        if not math.isfinite(value):
            refuse(where, f"must be a finite number, not {value}")
    elif isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            refuse(where, f"must be a number of at most 63 bits, not {shown(value)}")
    else:
        refuse(where, f"must be text, a number, true, false, a list or an object, not {shown(value)}")


def _check_object(items: Mapping[str, object], where: Place, depth: int) -> None:
    _check_depth(depth)
    for key, value in items.items():
        # Redaction does not change keys, so a key must not contain a path.
        if not _is_plain_key(key):
            refuse(where, f"has the key {shown(key)}; a key is a short name without slashes")
        if not _is_plain_leaf(value):
            check_plain(value, (where, key), depth)


def _check_list(items: Sequence[object], where: Place, depth: int) -> None:
    _check_depth(depth)
    if _are_floats(items) and math.isfinite(sum(items)):
        return  # fast path for samples, the bulk of a record: a sum is finite only if all values are
    for position, value in enumerate(items):
        if not _is_plain_leaf(value):
            check_plain(value, (where, position), depth)


def _are_floats(items: Sequence[object]) -> TypeGuard[Sequence[float]]:
    return set(map(type, items)) == {float}


def _check_depth(depth: int) -> None:
    if depth > MAX_NESTING:
        raise RefusedInputError(f"record: is nested more than {MAX_NESTING} levels deep")


@lru_cache(maxsize=1024)  # records have nearly all of their keys in common
def _is_plain_key(key: object) -> bool:
    return isinstance(key, str) and bool(_PLAIN_KEY.fullmatch(key))


def _is_plain_leaf(value: object) -> bool:
    """Whether it is valid text or a valid number. Checked without the place, which costs more than the check."""
    if type(value) is str:
        return not _UNPRINTABLE.search(value)
    if type(value) is int:
        return -MAX_INTEGER <= value <= MAX_INTEGER
    return type(value) is float and math.isfinite(value)


def refuse(where: Place, why: str) -> NoReturn:
    raise RefusedInputError(f"{spelled(where) or 'record'}: {why}")


def spelled(where: Place) -> str:
    """Format as `a.b[2]`; an unusual key is quoted."""
    if where is None:
        return ""
    parent, key = where
    if isinstance(key, int) or not _READABLE_KEY.fullmatch(key):
        return f"{spelled(parent)}[{shown(key)}]"
    return f"{spelled(parent)}.{key}" if parent else key


def shown(value: object) -> str:
    """Format any value for a message: short and printable."""
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
