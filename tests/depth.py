"""How deep the tests go: the quick and the deep profile scale the number of examples that a property names, and the
quick one has XLA compile in half the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import settings

NAMED = 100  # hypothesis' own number: in a profile that draws so many, a property draws as many as it names
FEWEST = 5


def examples(count: int, **more: Any) -> settings:
    scale = settings().max_examples / NAMED
    return settings(max_examples=max(FEWEST, round(count * scale)), deadline=None, **more)


def is_quick() -> bool:
    return settings().max_examples <= settings.get_profile("quick").max_examples


@contextmanager
def unoptimized_programs() -> Iterator[None]:
    """In workers that are started meanwhile, LLVM leaves XLA's programs as they are, which halves the time to compile
    them. Not for tests of speed. `make test-all` has LLVM optimize them."""
    with pytest.MonkeyPatch.context() as patch:
        if is_quick():
            patch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
        yield
