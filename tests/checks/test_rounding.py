"""What rounding decides is allowed, and no more than that; a network that is not sensitive gets no room at all."""

from __future__ import annotations

import pytest
from check_jobs import check_job, delicate
from hypothesis import given
from hypothesis import strategies as st

from deepstone.absent import Absent
from deepstone.checks.layers import LayerCheck
from deepstone.checks.sameness import FrameworkSameness
from deepstone.checks.verify import verify
from deepstone.checks.whole_step import (
    LARGEST_TOLERANCE,
    LOSS_TOLERANCE,
    MARGIN,
    STEPS,
    Sensitivity,
    find_sensitivity,
    reference_steps,
)
from deepstone.graph.graph import Graph
from deepstone.results.sameness import Distance

LEAST = LOSS_TOLERANCE


def silent(_what: str, _share: float) -> None:
    pass


def sensitivity_of(graph: Graph, phase: str) -> Sensitivity:
    steps = reference_steps(graph, batch=2, seed=0, phase=phase, on_progress=silent)
    return find_sensitivity(graph, steps, batch=2, seed=0, phase=phase, on_progress=silent)


def test_an_ordinary_network_is_moved_by_rounding_alone():
    found = sensitivity_of(delicate(), "train")
    assert len(found.moved) == STEPS
    assert 0 < max(found.moved) < 1e-12
    assert found.tolerances(LEAST) == [LEAST] * STEPS


def test_only_steps_before_chaos_are_compared():
    found = Sensitivity(moved=(1e-16, 1e-12, 1e-9, 1e-2, 1e-1))
    assert found.comparable_steps == 3
    errors = [1e-15, 2e-9, 1e-8, 0.5, 0.5]
    worst = found.worst_of(errors, LEAST, "loss")
    assert worst is not None
    assert (worst.what, worst.ok) == ("loss of step 3", True)
    assert "from step 4 on is not compared" in found.description()


def test_an_error_before_chaos_is_still_an_error():
    found = Sensitivity(moved=(1e-16, 1e-12, 1e-9, 1e-2, 1e-1))
    worst = found.worst_of([1e-15, 1e-4, 1e-4, 0.5, 0.5], LEAST, "loss")
    assert worst is not None
    assert (worst.what, worst.ok) == ("loss of step 2", False)


def test_where_the_first_loss_is_chance_nothing_is_compared():
    found = Sensitivity(moved=(3e-2,))
    assert found.worst_of([5e-2], LEAST, "loss") is None
    assert found.description().startswith("the loss is not compared")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_room_is_never_narrower_than_the_bound_nor_wider_than_what_tells(moved: list[float]):
    found = Sensitivity(moved=tuple(moved))
    compared = found.tolerances(LEAST)[: found.comparable_steps]
    assert all(LEAST <= tolerance <= LARGEST_TOLERANCE for tolerance in compared)
    assert all(tolerance == max(LEAST, MARGIN * each) for tolerance, each in zip(compared, moved, strict=False))


def distance(*, ok: bool) -> Distance:
    return Distance.of(layer="x", what="it", relative_error=1e-12 if ok else 1.0, tolerance=1e-9)


@pytest.mark.parametrize(
    ("float64", "is_one"),
    [
        ([distance(ok=True), distance(ok=False)], True),
        ([distance(ok=False), distance(ok=False)], False),
        ([distance(ok=True), distance(ok=True)], False),
        ([distance(ok=False)], True),
        (Absent("has none"), False),
    ],
)
def test_losses_are_looked_at_again_only_where_all_else_agrees(float64: list[Distance] | Absent, is_one: bool):
    found = FrameworkSameness(layers=LayerCheck(precision="fp32", checked=1), float64=float64)
    assert found.beyond_bound_at_the_end_only is is_one


def test_a_network_that_is_the_same_needs_no_second_look():
    assert verify({"it": check_job("torch")}, yardstick=check_job("torch"), timeout_s=200).sensitivity is None
