"""Sizes of memory as people write them: 2GiB, 500MB, 1.5 G, 1073741824."""

from __future__ import annotations

import re

from deepstone.errors import UsageError, shown

_SIZE = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*(?:([kmgt])(i?))?b?\s*", re.IGNORECASE | re.ASCII)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_MOST_BYTES = 2**50


def size_bytes(text: str) -> int:
    """KiB, MiB … count in steps of 1024, KB, MB … in steps of 1000, and without a unit in bytes. UsageError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UsageError(f"{shown(text)}: not a size of memory; write it like 2GiB, 500MB or 1073741824")
    number, letter, binary = found.groups()
    scale = 1 if letter is None else (1024 if binary else 1000) ** _POWERS[letter.lower()]
    value = round(float(number) * scale)
    if not 1 <= value <= _MOST_BYTES:
        raise UsageError(f"{shown(text)}: a size of memory is from 1 byte to 1024TiB")
    return value
