"""The papers there are, each a folder of data beside this file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deepstone.errors import UsageError, nearest

if TYPE_CHECKING:
    from deepstone.papers.paper import Paper

_HERE = Path(__file__).parent


def names() -> list[str]:
    return sorted(path.parent.name for path in _HERE.glob("*/paper.toml"))


def load(name: str) -> Paper:
    """UsageError for a name that is none."""
    from deepstone.papers.read import read_paper  # brings NumPy, which a list of names does not need

    known = names()
    if name not in known:
        raise UsageError(f"no paper {name!r}; {nearest(name, known)}")
    return read_paper(_HERE / name)
