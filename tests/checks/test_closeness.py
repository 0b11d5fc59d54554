"""Distances between trainings, measured by what other data change."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.absent import Absent
from deepstone.checks.closeness import Baseline, closeness
from deepstone.checks.first_steps import FirstSteps
from deepstone.results.tune import SameMeasure


def steps(scale: float = 1.0, *, noise: float = 0.0, seed: int = 0, shift: float = 0.0) -> FirstSteps:
    random = np.random.default_rng(7)
    other = np.random.default_rng(seed)
    arrays = {name: random.standard_normal(500) for name in ("a/weight", "b/weight")}
    changed = {name: scale * values + noise * other.standard_normal(500) for name, values in arrays.items()}
    return FirstSteps(
        gradients=changed, updates={1: changed, 20: changed}, losses=tuple(5.0 - 0.1 * t + shift for t in range(20))
    )


BASELINE = Baseline(
    batches=[steps(), steps(noise=1.0, seed=1, shift=0.2), steps(noise=1.0, seed=2, shift=-0.2)],
)


def measures(candidate: FirstSteps, *, narrow_state: bool = False) -> tuple[float, float, float]:
    found = closeness(BASELINE, candidate, narrow_state=narrow_state)
    values = [each.value for each in (found.gradient, found.loss, found.update) if isinstance(each, SameMeasure)]
    return values[0], values[1], values[2]


def test_the_same_training_has_no_distance() -> None:
    assert measures(steps()) == (0.0, 0.0, 0.0)
    assert closeness(BASELINE, steps()).ok


@given(st.floats(0.001, 3.0))
def test_a_distance_is_a_share_of_what_other_data_change(share: float) -> None:
    gradient, _, update = measures(steps(noise=share, seed=3))
    assert gradient == pytest.approx(share, rel=0.2)
    assert update == pytest.approx(share, rel=0.2)


def test_losses_are_measured_by_their_spread() -> None:
    _, loss, _ = measures(steps(shift=0.1))
    assert loss == pytest.approx(0.5, rel=0.01)
    assert not closeness(BASELINE, steps(shift=0.3)).ok


def test_narrow_weights_are_compared_with_the_update_itself() -> None:
    """Other data may change more than the update is: that is no excuse for weights that lose it."""
    noisy = Baseline(batches=[steps(), steps(noise=30.0, seed=1), steps(noise=30.0, seed=2)])
    lost = steps(0.5)
    of_data, of_update = closeness(noisy, lost).update, closeness(noisy, lost, narrow_state=True).update
    assert isinstance(of_data, SameMeasure)
    assert of_data.ok
    assert isinstance(of_update, SameMeasure)
    assert of_update.value == pytest.approx(0.5, rel=0.01)
    assert not of_update.ok


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_far_off(value: float) -> None:
    good = steps()
    bad = {**good.gradients, "b/weight": np.full(500, value)}
    found = closeness(BASELINE, FirstSteps(gradients=bad, updates=good.updates, losses=good.losses))
    assert isinstance(found.gradient, SameMeasure)
    assert found.gradient.where == "b/weight"
    assert not found.gradient.ok
    assert math.isfinite(found.gradient.value)
    lost = FirstSteps(gradients=good.gradients, updates=good.updates, losses=(*good.losses[:-1], value))
    assert not closeness(BASELINE, lost).ok


def test_an_array_that_is_missing_is_far_off() -> None:
    good = steps()
    without = {20: {name: values for name, values in good.updates[20].items() if name != "a/weight"}}
    found = closeness(BASELINE, FirstSteps(gradients=good.gradients, updates=without, losses=good.losses)).update
    assert isinstance(found, SameMeasure)
    assert found.where is not None
    assert found.where.startswith("a/weight")
    assert not found.ok


def test_rounding_of_an_array_without_a_gradient_does_not_count() -> None:
    """A bias before a batch norm: other data and another order change it alike, and by next to nothing."""
    bias = {"bias": np.full(9, 1e-9)}
    moved = {"bias": np.full(9, -1e-9)}
    batches = [
        FirstSteps(gradients={**each.gradients, **extra}, updates=each.updates, losses=each.losses)
        for each, extra in zip(BASELINE.batches, (bias, moved, bias), strict=True)
    ]
    good = steps()
    candidate = FirstSteps(gradients={**good.gradients, **moved}, updates=good.updates, losses=good.losses)
    assert closeness(Baseline(batches=batches), candidate).ok


def test_a_phase_without_gradients_has_the_loss_alone() -> None:
    """Of which less may differ then: a network that tells nothing has a loss like any other batch."""
    batches = [FirstSteps(gradients={}, updates={}, losses=(loss,)) for loss in (2.0, 2.1, 1.9)]
    for loss, is_close in ((2.005, True), (2.05, False)):
        found = closeness(Baseline(batches=batches), FirstSteps(gradients={}, updates={}, losses=(loss,)))
        assert isinstance(found.gradient, Absent)
        assert isinstance(found.update, Absent)
        assert found.ok == is_close


def test_other_numbers_of_steps_are_not_compared() -> None:
    found = closeness(BASELINE, FirstSteps(gradients=steps().gradients, updates={}, losses=(5.0,)))
    assert isinstance(found.loss, Absent)


def test_words_have_the_share_and_what_is_allowed() -> None:
    assert SameMeasure(value=0.031, tolerance=0.1).in_words() == "3.1 % of what other data change (10 % allowed)"
    failed = SameMeasure(value=1.0, tolerance=0.1, where="conv1/weight", within="the update")
    assert failed.in_words() == "100 % of the update in conv1/weight (10 % allowed)"
