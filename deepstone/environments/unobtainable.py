"""Frameworks of the studies that cannot be had any more, and why: so that nobody looks for them again."""

from __future__ import annotations

from typing import Final

UNOBTAINABLE: Final[dict[str, str]] = {
    "neon": "no package index holds it; what PyPI calls neon is something else",
    "torch7": "it is Lua, and no package of it is left that builds today",
}
