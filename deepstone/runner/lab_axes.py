"""Which axes the convolution lab has no use for: to set one must not be dropped in silence."""

from __future__ import annotations

from deepstone.setups.axes import AXES, Value

# What means nothing to a convolution by itself, and what the lab tries in every way by itself.
_NOT_HERE = ("compile", "input_grad", "dropout", "optimizer", "checkpointing", "input")
_TRIED_ALL = ("engine", "algorithm")


def no_use_of(name: str, value: Value) -> str | None:
    """Why the lab refuses this value of an axis, or None."""
    if value == AXES[name].default:
        return None
    if name in _NOT_HERE:
        return f"{name}={value}: conv times convolutions by themselves; leave it out"
    if name in _TRIED_ALL:
        return f"{name}={value}: conv tries every {name} there is; leave it out"
    return None
