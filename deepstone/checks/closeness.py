"""How far two trainings of one network are apart, measured by what other data would change. Pure.

    gradient   ‖g - g₀‖ / ‖g₁ - g₀‖   of each array        g₀, g₁: the default's first gradients on two batches
    update     ‖u - u₀‖ / ‖u₁ - u₀‖   of each array        u: what all steps together did to the parameters
    loss       the largest |l - l₀| of all steps / the spread of the default's losses over three batches

Training follows gradients of random batches. A change that is a tenth of that noise does not decide where it arrives.
Updates have a test of their own: at small learning rates narrow weights lose whole updates, and losses look alike.
Weights that are narrow are compared with the update itself, since what they lose is lost in every step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from deepstone.absent import Absent
from deepstone.checks.agreement import norm
from deepstone.checks.first_steps import FirstSteps, Values, all_finite
from deepstone.results.tune import SameMeasure

ALLOWED: Final = 0.1  # of what other data change
ALLOWED_LOSS: Final = 1.0  # of the spread of losses over batches
# An array whose gradient other data change by less than this share of the largest such change is compared with that
# share: the bias before a batch norm has no gradient, only rounding.
_LEAST_SHARE: Final = 0.01
_OTHER_DATA: Final = "what other data change"
_UPDATE: Final = "the update"
_SPREAD: Final = "the spread over three batches"


@dataclass(frozen=True, kw_only=True, slots=True)
class Closeness:
    """The three measures; those that a phase does not have are absent."""

    gradient: SameMeasure | Absent
    loss: SameMeasure | Absent
    update: SameMeasure | Absent

    def failed(self) -> list[str]:
        """Describe every test that failed, in a clause each."""
        named = (("gradients differ", self.gradient), ("losses differ", self.loss), ("updates differ", self.update))
        return [f"{what} by {described(measure)}" for what, measure in named if _failed(measure)]

    @property
    def ok(self) -> bool:
        measures = [each for each in (self.gradient, self.loss, self.update) if not isinstance(each, Absent)]
        return bool(measures) and all(measure.ok for measure in measures)


def _failed(measure: SameMeasure | Absent) -> bool:
    return not isinstance(measure, Absent) and not measure.ok


def described(measure: SameMeasure | Absent) -> str:
    """Describe as `3 % of what other data change (10 % allowed)`."""
    if isinstance(measure, Absent):
        return measure.reason
    where = f" in {measure.where}" if measure.where and not measure.ok else ""
    allowed = f"({_percent(measure.tolerance)} allowed)"
    return f"{_percent(measure.value)} of {measure.within or _OTHER_DATA}{where} {allowed}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:,.0f} %"


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """The default's first steps on several batches; the first of them is also the candidates'."""

    batches: Sequence[FirstSteps]

    def __post_init__(self) -> None:
        assert len(self.batches) >= 2

    @property
    def is_finite(self) -> bool:
        return all(map(all_finite, self.batches))


def closeness(baseline: Baseline, candidate: FirstSteps, *, narrow_state: bool = False) -> Closeness:
    """`narrow_state`: the parameters have a narrower format than those of the default."""
    first, other, *_ = baseline.batches
    gradients = _worst(candidate.gradients, first.gradients, _changes(first.gradients, other.gradients))
    reference = first.updates if narrow_state else _changes(first.updates, other.updates)
    updates = _worst(candidate.updates, first.updates, reference)
    return Closeness(
        gradient=_measure(gradients, _OTHER_DATA, "this phase computes no gradient"),
        loss=_loss(baseline, candidate),
        update=_measure(updates, _UPDATE if narrow_state else _OTHER_DATA, "this phase has no update"),
    )


def _changes(one: Values, other: Values) -> Values:
    return {name: other[name] - values for name, values in one.items() if name in other}


def _worst(given: Values, expected: Values, reference: Values) -> Mapping[str, float]:
    """The distance of each array. One that is missing on one side is as far off as it is large."""
    sizes = {name: norm(values) for name, values in reference.items()}
    floor = _LEAST_SHARE * max(sizes.values(), default=0.0)
    found: dict[str, float] = {}
    for name in expected.keys() | given.keys():
        size = max(sizes.get(name, 0.0), floor)
        found[name] = _distance(given, expected, name) / size if size > 0 else _whether(given, expected, name)
    return found


def _distance(given: Values, expected: Values, name: str) -> float:
    one, other = given.get(name), expected.get(name)
    if one is None or other is None:
        present = one if other is None else other
        return 0.0 if present is None else norm(present)
    if one.shape != other.shape:
        return math.inf
    return norm(one - other)


def _whether(given: Values, expected: Values, name: str) -> float:
    """Where other data change nothing at all, anything that differs is infinitely far off."""
    return 0.0 if _distance(given, expected, name) == 0 else math.inf


def _measure(distances: Mapping[str, float], within: str, why_none: str) -> SameMeasure | Absent:
    if not distances:
        return Absent(why_none)
    where = max(distances, key=lambda name: _rank(distances[name]))
    return _bounded(distances[where], ALLOWED, within, where)


def _rank(value: float) -> float:
    return value if math.isfinite(value) else math.inf


def _bounded(value: float, tolerance: float, within: str, where: str | None = None) -> SameMeasure:
    """What is not finite has a number all the same: results are JSON."""
    limited = min(value, _MOST) if math.isfinite(value) else _MOST
    return SameMeasure(value=limited, tolerance=tolerance, where=where, within=within)


_MOST: Final = 1e6


def _loss(baseline: Baseline, candidate: FirstSteps) -> SameMeasure | Absent:
    first = baseline.batches[0]
    if len(candidate.losses) != len(first.losses):
        return Absent("the two sides did not run as many steps")
    losses: NDArray[np.float64] = np.array([each.losses for each in baseline.batches], dtype=np.float64)
    spread = math.sqrt(float(losses.var(axis=0, ddof=1).mean()))  # over all steps: that of one step is chance
    differences: NDArray[np.float64] = np.abs(np.array(candidate.losses, dtype=np.float64) - losses[0])
    worst = float(np.max(differences)) if np.isfinite(differences).all() else math.inf
    if spread == 0:
        return _bounded(0.0 if worst == 0 else math.inf, ALLOWED_LOSS, _SPREAD)
    return _bounded(worst / spread, ALLOWED_LOSS, _SPREAD)
