"""How many examples a property draws: the quick and the deep profile scale the number that it names."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

NAMED = 100  # hypothesis' own number: in a profile that draws so many, a property draws as many as it names
FEWEST = 5


def examples(count: int, **more: Any) -> settings:
    scale = settings().max_examples / NAMED
    return settings(max_examples=max(FEWEST, round(count * scale)), deadline=None, **more)
