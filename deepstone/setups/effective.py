"""What was done against what was asked. Effective values may refine `auto`; a contradiction is *unsupported*."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from deepstone.setups.axes import AUTO, ISA_ORDER, Value
from deepstone.setups.request import Request

# The axes that a framework decides about: what it did may be something else than it was told.
LEFT_TO_FRAMEWORKS = (
    *("device", "precision", "layout", "engine", "algorithm", "compile"),
    *("threads", "inter_threads", "affinity", "isa"),
)


class EffectiveValue(Protocol):
    """What an axis was in effect, as `results.record.Effect` holds it."""

    @property
    def value(self) -> str | int | float | bool: ...


def contradiction(requested: Request, effective: Mapping[str, EffectiveValue]) -> str | None:
    """Why the effective setup is not what was asked for, or None. Early records lack axes that came later."""
    for name, asked in requested.items():
        if name not in effective:
            return f"the backend does not say what it did about {name}"
        done = effective[name].value
        if not fits(name, asked, done):
            return f"asked for {name}={asked}, but got {done}"
    return None


def fits(name: str, asked: Value, done: str | int | float | bool) -> bool:
    """Whether the effective value of one axis is what was asked for, or refines it."""
    if asked in (AUTO, done):
        return True
    if name == "framework":  # without a version it asks for any; tag and variant were checked when it was found
        return asked == str(done).partition("@")[0] or str(asked).startswith((f"{done}+", f"{done}-"))
    if name == "processes":  # as many on each node
        return str(asked).endswith("/node")
    if name == "isa":  # a limit, not an order
        return done in ISA_ORDER and ISA_ORDER.index(str(done)) <= ISA_ORDER.index(str(asked))
    return False
