"""What the shell offers when one presses Tab: model names, axes, and the values of an axis."""

from __future__ import annotations

from deepstone.setups.axes import AXES


def complete_model(incomplete: str) -> list[str]:
    from deepstone.models.zoo import ZOO

    return [name for name in ZOO if name.startswith(incomplete)]


def complete_axis(incomplete: str) -> list[str]:
    name, equals, typed = incomplete.partition("=")
    if not equals:
        return [f"{axis}=" for axis in AXES if axis.startswith(name)]
    if name not in AXES:
        return []
    before, comma, last = typed.rpartition(",")
    return [f"{name}={before}{comma}{value}" for value in AXES[name].values if value.startswith(last)]
