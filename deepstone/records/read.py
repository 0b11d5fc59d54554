"""From bytes that anyone may have written to a record, with size, depth and number of values bounded before parsing."""

from __future__ import annotations

import json
from typing import Final, NoReturn, TypeAlias

from deepstone.errors import RefusedInputError
from deepstone.records.schema import MAX_NESTING, MAX_RECORD_BYTES
from deepstone.records.shape import shown

MAX_CONTAINERS: Final = 2_000_000  # 64 MiB of "{}," would otherwise become gigabytes of objects
MAX_DIGITS: Final = 19  # of a whole number; a longer one does not fit 63 bits
WRAPPER_LEVELS: Final = 2  # a record may stand in a list, in an object with its checksum

_BRACKETS = b"[]{}"
_ALL_BUT_BRACKETS = bytes(sorted(set(range(256)) - set(_BRACKETS)))

Pairs: TypeAlias = list[tuple[str, object]]


def parse_json(data: bytes, *, limit_bytes: int = MAX_RECORD_BYTES) -> object:
    """JSON without duplicate keys, NaN or huge numbers; RefusedInputError says what and where."""
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
    """Refuse deep nesting and masses of containers by looking at the brackets alone, so that no parser meets them."""
    # An escaped quote ends no string. Dropping escaped backslashes first leaves only real escapes of quotes.
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
        raise RefusedInputError(f"holds the key {shown(_first_repeated(pairs))} twice in one object")
    return items


def _first_repeated(pairs: Pairs) -> str:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    raise AssertionError("called only when a key is repeated")


def _no_constant(name: str) -> NoReturn:
    raise RefusedInputError(f"holds {name}, which is not a number of JSON")


def _bounded_int(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise RefusedInputError(f"holds a whole number of more than {MAX_DIGITS} digits")
    return int(digits)
