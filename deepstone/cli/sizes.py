"""Sizes as people write them: `64x56x56`, `3x3`, or `3` for both sides."""

from __future__ import annotations

import re

from deepstone.errors import UsageError, shown

_LARGEST = 2**20


def sizes(option: str, text: str, *, counts: tuple[int, ...], least: int = 1, example: str) -> tuple[int, ...]:
    """As many whole numbers as `counts` allows."""
    parts = re.split("[xX×,]", text.strip())
    if not all(re.fullmatch(r"[0-9]{1,7}", part) for part in parts):
        raise UsageError(f"{option} {shown(text)}: must be whole numbers with x between them, as in {example}")
    numbers = tuple(map(int, parts))
    if any(not least <= number <= _LARGEST for number in numbers):
        raise UsageError(f"{option} {shown(text)}: each must be from {least} to {_LARGEST}")
    if len(numbers) not in counts:
        wanted = " or ".join(map(str, counts))
        raise UsageError(f"{option} {shown(text)}: has {len(numbers)} numbers and needs {wanted}, as in {example}")
    return numbers


def pair(option: str, text: str, *, example: str) -> tuple[int, int]:
    """One number stands for both sides."""
    found = sizes(option, text, counts=(1, 2), example=example)
    return found[0], found[-1]


def padding(option: str, text: str) -> tuple[int, int, int, int]:
    """One number for all sides, two for height and width, four for top, bottom, left and right."""
    found = sizes(option, text, counts=(1, 2, 4), least=0, example="1, 1x2 or 0x1x0x1")
    if len(found) == 4:
        return found[0], found[1], found[2], found[3]
    return found[0], found[0], found[-1], found[-1]
