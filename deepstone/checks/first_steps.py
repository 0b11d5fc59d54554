"""Runs the first steps of a job, and keeps what they did: the first gradient, the losses, and the update of all steps.

    build ─ ● ─ step 1 ─ gradient ─ steps 2 … n ─ ●     ● some values of every parameter; their difference: the update

Only some values of every array are read: enough for a distance between two trainings, and hundreds of megabytes fewer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deepstone.runner.conversation import JobFailed
from deepstone.runner.team import Talk, Team
from deepstone.setups.axes import Value

Values: TypeAlias = Mapping[str, NDArray[np.float64]]

STEPS: Final = 20
# Of each array. A prime number: evenly spaced values of a matrix would else all be of a few columns.
MOST_VALUES: Final = 16381
# A loss scale that starts too large skips its first updates, until it is small enough.
MOST_SKIPPED: Final = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstSteps:
    """Empty gradients: phase=forward has none. Empty updates: only phase=train has some."""

    gradients: Values
    updates: Values
    losses: tuple[float, ...]


def run_first_steps(
    talk: Talk, phase: str, changed: Mapping[str, Value], *, data_seed: int, may_skip: bool = False
) -> FirstSteps:
    """Build the network anew and run STEPS steps; of phase=forward and gradient one, since nothing changes.

    `may_skip`: leave out steps at the start that update nothing, as a loss scale does. `data_seed`: of the batch.
    """
    talk.build(changed, keep_gradients=True, data_seed=data_seed)
    if phase == "forward":
        return FirstSteps(gradients={}, updates={}, losses=tuple(talk.losses(1)))
    if phase == "gradient":
        losses = tuple(talk.losses(1))
        return FirstSteps(gradients=talk.sample("gradients", most=MOST_VALUES), updates={}, losses=losses)
    before = talk.sample("parameters", most=MOST_VALUES)
    losses, gradients = _first_update(talk, before, may_skip=may_skip)
    losses += talk.losses(STEPS - 1)
    after = talk.sample("parameters", most=MOST_VALUES)
    if isinstance(talk, Team) and talk.differing:
        raise JobFailed("crashed", f"replicas differ: {talk.differing[0]}", stage="sample")
    updates = {name: after[name] - values for name, values in before.items() if name in after}
    return FirstSteps(gradients=gradients, updates=updates, losses=tuple(losses))


def _first_update(talk: Talk, before: Values, *, may_skip: bool) -> tuple[list[float], Values]:
    """Run steps until the first that updates. Its loss is that of the first step: the parameters are still the same."""
    for _ in range(MOST_SKIPPED if may_skip else 1):
        losses = talk.losses(1)
        gradients = talk.sample("gradients", most=MOST_VALUES)
        if not may_skip or _moved(before, talk.sample("parameters", most=MOST_VALUES)):
            return losses, gradients
    raise JobFailed("diverged", f"its loss scale skipped all of the first {MOST_SKIPPED} updates", stage="losses")


def _moved(before: Values, after: Values) -> bool:
    return any(not np.array_equal(values, after[name]) for name, values in before.items() if name in after)


def are_finite(values: Values) -> bool:
    return all(bool(np.isfinite(array).all()) for array in values.values())


def all_finite(steps: FirstSteps) -> bool:
    return all(map(math.isfinite, steps.losses)) and are_finite(steps.gradients) and are_finite(steps.updates)
