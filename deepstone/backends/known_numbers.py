"""Whole numbers that float32 adds exactly in any order, by which the result of an operation between processes is
checked."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

_PERIOD: Final = 4093  # a prime, so that no two neighbouring parts look alike


def numbers(count: int) -> Any:
    return (np.arange(count) % _PERIOD).astype(np.float32)


def difference(result: Any, expected: Any) -> str:
    """Where the result is wrong, or nothing."""
    if result.shape != expected.shape:
        return f"{result.size:,} numbers, and {expected.size:,} were to come"
    wrong = np.flatnonzero(result != expected)
    if not len(wrong):
        return ""
    at = int(wrong[0])
    return f"{len(wrong):,} of {result.size:,} numbers; number {at} is {result[at]:g} and must be {expected[at]:g}"
