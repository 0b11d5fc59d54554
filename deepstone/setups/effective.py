"""Compares effective with requested values. Effective values may refine `auto`; a contradiction is *unsupported*."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from deepstone.setups.axes import AUTO, ISA_ORDER, PLACEMENTS, Value
from deepstone.setups.request import Request

# The axes that a framework decides about: the effective value may differ from the requested one.
LEFT_TO_FRAMEWORKS = (
    *("device", "precision", "layout", "engine", "algorithm", "compile"),
    *("threads", "inter_threads", "affinity", "isa", "allocator", "wait", "power_limit"),
)


class EffectiveValue(Protocol):
    """The effective value of an axis, as in `results.record.Effect`."""

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


def fits(name: str, requested: Value, effective: str | int | float | bool) -> bool:
    """Whether the effective value of one axis equals or refines the requested one."""
    if requested in (AUTO, effective):
        return True
    if (
        name == "framework"
    ):  # without a version any one fits; tag and variant were checked when the environment was found
        return requested == str(effective).partition("@")[0] or str(requested).startswith(
            (f"{effective}+", f"{effective}-")
        )
    if name == "affinity":  # which CPUs that means is decided where the process starts
        return requested in PLACEMENTS
    if name == "processes":  # as many on each node
        return str(requested).endswith("/node")
    if name == "isa":  # an upper limit
        return effective in ISA_ORDER and ISA_ORDER.index(str(effective)) <= ISA_ORDER.index(str(requested))
    return False
