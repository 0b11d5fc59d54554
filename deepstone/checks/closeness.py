"""How far two trainings of one network are apart, measured by what other data would change. Pure.

    gradient   ‖g - g₀‖ / ‖g₁ - g₀‖   of each array     g₀, g₁: the default's first gradients on two batches
    update     ‖u - u₀‖ / ‖u₁ - u₀‖   of each array     u: what 1, 2, … 20 steps together did to the parameters
    own        ‖u - αg‖ / ‖αg‖        of each array     the first update against its own gradient; α is the default's
    loss       the largest |l - l₀| of all steps / the spread of the default's losses over three batches

Training follows gradients of random batches. A change that is a tenth of that noise does not decide where it arrives.
Updates have tests of their own: at small learning rates narrow weights lose whole updates, and losses look alike.

A deep network may amplify rounding until the gradient of one batch means nothing: in ResNet-110, rounding the weights
to bf16 changes it as much as other data do, and another order of sums decides where the third step goes. Then the
default is run again with its weights changed by as much as the candidate rounds. The candidate may be four times as
far, in its losses too, if its gradients and updates are as large and its first update follows its own gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from deepstone.absent import Absent
from deepstone.checks.agreement import norm
from deepstone.checks.first_steps import FirstSteps, Values
from deepstone.results.tune import OTHER_DATA, SameMeasure

ALLOWED: Final = 0.1  # of what other data change
ALLOWED_LOSS: Final = 1.0  # of the spread of losses over batches; where the loss is all there is, a tenth
ALLOWED_OVER_ROUNDING: Final = 4.0  # times what rounding the weights alone changes: activations are rounded too
ALLOWED_SIZE: Final = 2.0  # how much larger or smaller an array may be, where rounding decides its direction
# An array that other data change by less than this share of the largest such change is compared with that share: the
# bias before a batch norm has no gradient, only rounding.
_LEAST_SHARE: Final = 0.01
_UPDATE: Final = "the update"
_OWN_GRADIENT: Final = "the step along its own gradient"
_SPREAD: Final = "the spread over three batches"
_MOST: Final = 1e6  # instead of infinity: results are JSON
_NOT_FOLLOWED: Final = 0.5  # an optimizer whose first update is so far from any multiple of the gradient is another one


class Baseline(Struct, frozen=True, kw_only=True):
    """The default's first steps on several batches; the first of them is also the candidates'."""

    batches: Sequence[FirstSteps]

    def __post_init__(self) -> None:
        assert len(self.batches) >= 2

    @property
    def is_finite(self) -> bool:
        return all(each.is_finite for each in self.batches)


class Closeness(Struct, frozen=True, kw_only=True):
    """The three measures, each the worst of its kind; those that a phase does not have are absent. `sizes`: arrays that
    are far larger or smaller; looked at only where rounding decides the rest."""

    gradient: SameMeasure | Absent
    loss: SameMeasure | Absent
    update: SameMeasure | Absent
    sizes: tuple[str, ...] = ()

    def failed(self) -> list[str]:
        """Describe every test that failed, in a clause each."""
        named = (("gradients differ", self.gradient), ("losses differ", self.loss), ("updates differ", self.update))
        failed = [
            f"{what} by {measure.in_words()}"
            for what, measure in named
            if not isinstance(measure, Absent) and not measure.ok
        ]
        return failed + ([f"{self.sizes[0]} is of another size"] if self.sizes else [])

    @property
    def ok(self) -> bool:
        measures = [each for each in (self.gradient, self.loss, self.update) if not isinstance(each, Absent)]
        return bool(measures) and all(measure.ok for measure in measures) and not self.sizes


class _Distance(Struct, frozen=True, kw_only=True):
    """One array: how far it is, how far it may be, and as a share of what."""

    value: float
    tolerance: float
    where: str
    within: str

    @property
    def badness(self) -> float:
        return self.value / self.tolerance if math.isfinite(self.value) else math.inf


def closeness(
    baseline: Baseline, candidate: FirstSteps, *, narrow_state: bool = False, rounded: FirstSteps | None = None
) -> Closeness:
    """`narrow_state`: the parameters have a narrower format than those of the default, so what they lose is lost in
    every step: the first update is compared with itself. `rounded`: the default with its weights changed by as much as
    the candidate rounds; what that changes is allowed."""
    first, other, *_ = baseline.batches
    gradients = list(_from_default(candidate.gradients, first.gradients, other.gradients, _of(rounded, _gradients)))
    return Closeness(
        gradient=_worst(gradients, "this phase computes no gradient"),
        loss=_loss(baseline, candidate, rounded, allowed=ALLOWED_LOSS if gradients else ALLOWED),
        update=_worst(_updates(baseline, candidate, rounded, narrow=narrow_state), "this phase has no update"),
        sizes=tuple(_other_sizes(baseline, candidate)) if rounded is not None else (),
    )


def _gradients(steps: FirstSteps) -> Values:
    return steps.gradients


def _of(steps: FirstSteps | None, read: Callable[[FirstSteps], Values]) -> Values | None:
    return None if steps is None else read(steps)


def _updates(
    baseline: Baseline, candidate: FirstSteps, rounded: FirstSteps | None, *, narrow: bool
) -> Iterator[_Distance]:
    first, other, *_ = baseline.batches
    for steps, updates in candidate.updates.items():
        expected, of_other = first.updates.get(steps, {}), other.updates.get(steps, {})
        after = f" after {steps} step{'s' if steps > 1 else ''}"
        by_rounding = None if rounded is None else rounded.updates.get(steps, {})
        yield from _from_default(updates, expected, of_other, by_rounding, after=after)
        if narrow and rounded is None:
            yield from _from_reference(updates, expected, expected, None, within=_UPDATE, after=after)
    yield from _along_own_gradient(first, candidate)


def _from_default(
    given: Values, expected: Values, of_other: Values, rounded: Values | None, *, after: str = ""
) -> Iterator[_Distance]:
    reference = {name: of_other[name] - values for name, values in expected.items() if name in of_other}
    return _from_reference(given, expected, reference, rounded, within=OTHER_DATA, after=after)


def _from_reference(
    given: Values, expected: Values, reference: Values, rounded: Values | None, *, within: str, after: str
) -> Iterator[_Distance]:
    """The distance of each array, as a share of the size of its reference. One that is missing on one side is as far
    off as it is large. What rounding alone changes is that of the array, or of all of them if that is more."""
    sizes = {name: norm(values) for name, values in reference.items()}
    floor = _LEAST_SHARE * max(sizes.values(), default=0.0)
    names = sorted(expected.keys() | given.keys())
    of_all = 0.0
    if rounded is not None:
        everything = math.hypot(*sizes.values())
        of_all = math.hypot(*(_apart(rounded, expected, name) for name in names)) / everything if everything else 0.0
    for name in names:
        size = max(sizes.get(name, 0.0), floor)
        by_rounding = 0.0 if rounded is None else max(of_all, _share(_apart(rounded, expected, name), size))
        yield _Distance(
            value=_share(_apart(given, expected, name), size),
            tolerance=max(ALLOWED, ALLOWED_OVER_ROUNDING * by_rounding),
            where=name + after,
            within=within,
        )


def _apart(given: Values, expected: Values, name: str) -> float:
    one, other = given.get(name), expected.get(name)
    if one is None or other is None:
        present = one if other is None else other
        return 0.0 if present is None else norm(present)
    return norm(one - other) if one.shape == other.shape else math.inf


def _share(distance: float, size: float) -> float:
    """Where other data change nothing at all, anything that differs is infinitely far off."""
    return distance / size if size > 0 else 0.0 if distance == 0 else math.inf


def _along_own_gradient(default: FirstSteps, candidate: FirstSteps) -> Iterator[_Distance]:
    """The first update of SGD, with momentum or without, is a multiple of the gradient; that of Adam is not, and is
    left out. Rounding cannot excuse an update that does not follow its own gradient."""
    of_default, of_candidate = default.updates.get(1, {}), candidate.updates.get(1, {})
    lengths = {name: norm(values) for name, values in of_default.items()}
    floor = _LEAST_SHARE * max(lengths.values(), default=0.0)
    for name, update in of_default.items():
        gradient, own, own_update = default.gradients.get(name), candidate.gradients.get(name), of_candidate.get(name)
        if gradient is None or lengths[name] <= floor:
            continue
        factor = float(update @ gradient) / max(float(gradient @ gradient), 1e-300)
        off = norm(update - factor * gradient) / lengths[name]
        if off > _NOT_FOLLOWED:
            continue
        value = math.inf
        if own is not None and own_update is not None and own.shape == own_update.shape:
            value = _share(norm(own_update - factor * own), max(abs(factor) * norm(own), floor))
        yield _Distance(value=value, tolerance=ALLOWED + 2 * off, where=name, within=_OWN_GRADIENT)


def _other_sizes(baseline: Baseline, candidate: FirstSteps) -> Iterator[str]:
    """Name the arrays whose gradient, or whose update, is far larger or smaller than on any batch of the default."""
    for what, read in (("gradient", _gradients), ("update", _last_update)):
        on_batches = [{name: norm(values) for name, values in read(each).items()} for each in baseline.batches]
        largest = max((max(sizes.values(), default=0.0) for sizes in on_batches), default=0.0)
        for name, values in read(candidate).items():
            known = [sizes[name] for sizes in on_batches if name in sizes]
            least, most, size = min(known, default=0.0), max(known, default=0.0), norm(values)
            if most > _LEAST_SHARE * largest and not least / ALLOWED_SIZE <= size <= most * ALLOWED_SIZE:
                yield f"the {what} of {name}"


def _last_update(steps: FirstSteps) -> Values:
    return steps.updates[max(steps.updates)] if steps.updates else {}


def _worst(distances: Iterable[_Distance], why_none: str) -> SameMeasure | Absent:
    worst = max(distances, key=lambda each: each.badness, default=None)
    if worst is None:
        return Absent(why_none)
    return _measure(worst.value, worst.tolerance, worst.within, worst.where)


def _measure(value: float, tolerance: float, within: str, where: str | None = None) -> SameMeasure:
    limited = min(value, _MOST) if math.isfinite(value) else _MOST
    return SameMeasure(value=limited, tolerance=min(tolerance, _MOST), where=where, within=within)


def _loss(
    baseline: Baseline, candidate: FirstSteps, rounded: FirstSteps | None, *, allowed: float
) -> SameMeasure | Absent:
    first = baseline.batches[0]
    if len(candidate.losses) != len(first.losses):
        return Absent("the two sides did not run as many steps")
    losses: NDArray[np.float64] = np.array([each.losses for each in baseline.batches], dtype=np.float64)
    spread = math.sqrt(float(losses.var(axis=0, ddof=1).mean()))  # over all steps: that of one step is chance
    by_rounding = 0.0
    if rounded is not None and len(rounded.losses) == len(first.losses):
        by_rounding = _share(_furthest(rounded.losses, losses[0]), spread)
    tolerance = max(allowed, ALLOWED_OVER_ROUNDING * by_rounding) if math.isfinite(by_rounding) else allowed
    return _measure(_share(_furthest(candidate.losses, losses[0]), spread), tolerance, _SPREAD)


def _furthest(losses: Sequence[float], expected: NDArray[np.float64]) -> float:
    differences: NDArray[np.float64] = np.abs(np.array(losses, dtype=np.float64) - expected)
    return float(np.max(differences)) if np.isfinite(differences).all() else math.inf


def rounding_share(baseline: Baseline, rounded: FirstSteps) -> float:
    """How far the default is from itself if its weights are rounded: the distance of all gradients, as a share."""
    first, other, *_ = baseline.batches
    apart = math.hypot(*(_apart(rounded.gradients, first.gradients, name) for name in first.gradients))
    noise = math.hypot(*(_apart(other.gradients, first.gradients, name) for name in first.gradients))
    return min(_share(apart, noise), _MOST)


def gradient_alone(baseline: Baseline, candidate: FirstSteps, rounded: FirstSteps | None = None) -> Closeness:
    """The first gradient and loss, of a candidate that ran one step."""
    batches = [FirstSteps(gradients=each.gradients, updates={}, losses=each.losses[:1]) for each in baseline.batches]
    return closeness(Baseline(batches=batches), candidate, rounded=rounded)
