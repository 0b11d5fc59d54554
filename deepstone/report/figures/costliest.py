"""A deep network has more layers than a page has lines: the costliest are shown one by one, the others as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

SHOWN_AT_MOST: Final = 40

Item = TypeVar("Item")


def costliest(
    items: Sequence[Item], cost: Callable[[Item], float], at_most: int = SHOWN_AT_MOST
) -> tuple[list[Item], list[Item]]:
    """Those shown and the others, both in the order in which they came. One alone is never left over."""
    if len(items) <= at_most + 1:
        return list(items), []
    ranked = sorted(range(len(items)), key=lambda at: (-cost(items[at]), at))
    chosen = set(ranked[:at_most])
    return [item for at, item in enumerate(items) if at in chosen], [
        item for at, item in enumerate(items) if at not in chosen
    ]


def others_in_words(shown: Sequence[object], others: Sequence[object], what: str = "layers") -> list[str]:
    """For the caption; nothing when all are shown."""
    if not others:
        return []
    total = len(shown) + len(others)
    return [f"Shown one by one are the {len(shown)} costliest of {total:,} {what}."]
