"""Runs the first steps of a job, and keeps what they did: the first gradient, the losses, the updates so far.

    build ─ ● ─ step 1 ─ gradient ─ ● ─ 2 ─ ● ─ … ─ 20 ─ ●     ● some values of every parameter; updates: differences

Only some values of every array are read: enough for a distance between two trainings, and hundreds of megabytes fewer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from deepstone.runner.conversation import BuildOptions, JobFailed
from deepstone.runner.team import Talk, Team
from deepstone.setups.axes import Value

Values: TypeAlias = Mapping[str, NDArray[np.float64]]

READ_AFTER: Final = (1, 2, 5, 10, 20)  # steps
STEPS: Final = READ_AFTER[-1]
FEWER_STEPS: Final = (STEPS, 10, 5)  # where time is short
# Of each array. A prime number: evenly spaced values of a matrix would else all be of a few columns.
MOST_VALUES: Final = 16381
# A loss scale that starts too large skips its first updates, until it is small enough.
MOST_SKIPPED: Final = 16


class FirstSteps(Struct, frozen=True, kw_only=True):
    """Empty gradients: phase=forward has none. `updates`: by the number of steps; only phase=train has some."""

    gradients: Values
    updates: Mapping[int, Values]
    losses: tuple[float, ...]

    @property
    def is_finite(self) -> bool:
        arrays = (self.gradients, *self.updates.values())
        return all(map(math.isfinite, self.losses)) and all(map(_are_finite, arrays))


class Start(Struct, frozen=True, kw_only=True):
    """From which weights and on which batch the steps begin, and how many there are. `changed`: axes that differ from
    those of the job; `perturbation`: the share by which every weight is changed."""

    phase: str
    data_seed: int
    changed: Mapping[str, Value]
    perturbation: float = 0.0
    steps: int = STEPS

    def build(self, talk: Talk) -> None:
        options = BuildOptions(
            keep_gradients=True, data_seed=self.data_seed, perturbation=self.perturbation, like_photographs=True
        )
        talk.build(self.changed, options)


def run_first_steps(talk: Talk, start: Start, *, may_skip: bool = False) -> FirstSteps:
    """Build the network anew and run the steps; of phase=forward and gradient one, since nothing changes.

    `may_skip`: leave out steps at the start that update nothing, as a loss scale does.
    """
    if start.phase != "train":
        return run_first_gradient(talk, start)
    start.build(talk)
    before = talk.sample("parameters", most=MOST_VALUES)
    losses, gradients = _first_update(talk, before, may_skip=may_skip)
    updates: dict[int, Values] = {}
    for steps in (each for each in READ_AFTER if each <= start.steps):
        losses += talk.losses(steps - len(losses)) if steps > len(losses) else []
        after = talk.sample("parameters", most=MOST_VALUES)
        updates[steps] = {name: after[name] - values for name, values in before.items() if name in after}
    if isinstance(talk, Team) and talk.differing:
        raise JobFailed("crashed", f"replicas differ: {talk.differing[0]}", stage="sample")
    return FirstSteps(gradients=gradients, updates=updates, losses=tuple(losses))


def run_first_gradient(talk: Talk, start: Start) -> FirstSteps:
    """One step, whatever the phase."""
    start.build(talk)
    losses = tuple(talk.losses(1))
    gradients = {} if start.phase == "forward" else talk.sample("gradients", most=MOST_VALUES)
    return FirstSteps(gradients=gradients, updates={}, losses=losses)


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


def _are_finite(values: Values) -> bool:
    return all(bool(np.isfinite(array).all()) for array in values.values())
