"""The account of communication: its parts add up, whatever the steps took, and a disturbed step counts in none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.measure.accounting import Rounds, StepParts, account_of, mean_of_ranks
from deepstone.measure.doubts import unexplained_communication
from deepstone.results.parallel import Account, RankAccount
from deepstone.results.quantity import Quantity

PARTS = ("waiting", "tail", "slowdown", "packing", "buffers", "residual")


def step(computing: float, *, waiting: float = 0, tail: float = 0, packing: float = 0, buffers: float = 0):
    return StepParts(
        total_s=computing + waiting + tail + packing + buffers,
        computing_s=computing,
        waiting_s=waiting,
        tail_s=tail,
        packing_s=packing,
        buffers_s=buffers,
        in_flight_s=2 * tail,
    )


def same(each: StepParts, *, rounds: int = 4, steps: int = 5) -> Rounds:
    return [[each] * steps] * rounds


class TestAccount:
    def test_every_part_is_found_as_it_was_planted(self):
        """Computing takes 10, with packing 11.5, beside reductions 12; 0.5 are packed afterwards."""
        traced = same(step(12.0, waiting=3.0, tail=4.0, packing=0.5, buffers=0.25))
        found = account_of([[20.0] * 5] * 4, traced, same(step(10.0)), same(step(11.5)))
        expected = {
            "total": 10.0,
            "waiting": 3.0,
            "tail": 4.0,
            "slowdown": 0.5,
            "packing": 2.0,
            "buffers": 0.25,
            "residual": 0.25,
            "in_flight": 8.0,
            "traced_step": 19.75,
        }
        assert {name: quantity.median for name, quantity in found.items()} == pytest.approx(expected)
        assert all(quantity.low == quantity.median == quantity.high for quantity in found.values())

    def test_where_nothing_is_packed_inside_backward(self):
        found = account_of([[15.0] * 5] * 4, same(step(11.0, tail=3.0, packing=1.0)), same(step(10.0)), None)
        assert (found["slowdown"].median, found["packing"].median, found["residual"].median) == (1.0, 1.0, 0.0)

    def test_a_disturbed_step_counts_in_no_part(self):
        steps = [step(10.0, tail=2.0)] * 9
        traced = [[*steps, step(10.0, tail=90.0)]] * 4
        found = account_of([[12.0] * 10] * 4, traced, same(step(10.0), steps=10), None)
        assert found["tail"].median == pytest.approx(2.0)
        assert found["residual"].median == pytest.approx(0.0)

    times = st.floats(0, 10)
    steps = st.builds(step, times, waiting=times, tail=times, packing=times, buffers=times)
    rounds = st.lists(st.lists(steps, min_size=3, max_size=3), min_size=2, max_size=2)
    plain_rounds = st.lists(st.lists(times, min_size=3, max_size=3), min_size=2, max_size=2)

    @given(plain_rounds, rounds, rounds, st.none() | rounds)
    def test_the_parts_always_add_up(self, plain: list[list[float]], traced: Rounds, local: Rounds, packing):
        found = account_of(plain, traced, local, packing)
        assert sum(found[name].median for name in PARTS) == pytest.approx(found["total"].median, abs=1e-9)
        assert all(quantity.low <= quantity.median <= quantity.high for quantity in found.values())

    def test_ranks_are_averaged_part_by_part(self):
        mean = mean_of_ranks([step(10.0, waiting=4.0), step(14.0)])
        assert mean == step(12.0, waiting=2.0)


def quantity(median: float, half: float = 0.0) -> Quantity:
    return Quantity.of(median=median, low=median - half, high=median + half, n=40)


def account(residual: Quantity) -> Account:
    zero = quantity(0.0)
    names = ("waiting", "tail", "slowdown", "packing", "buffers", "in_flight", "traced_step")
    others = {f"{name}_s": zero for name in names}
    ranks = [RankAccount(waiting_s=zero, tail_s=zero, slowdown_s=zero)]
    return Account(total_s=quantity(10e-3), residual_s=residual, ranks=ranks, method="made up", **others)


class TestDoubt:
    @pytest.mark.parametrize(
        ("residual", "exposed", "doubted"),
        [
            (quantity(3e-3, 1e-3), quantity(10e-3, 1e-3), True),
            (quantity(-3e-3, 1e-3), quantity(10e-3, 1e-3), True),
            (quantity(1e-3, 0.1e-3), quantity(10e-3, 1e-3), False),  # a tenth of 11 is 1.1
            (quantity(3e-3, 2e-3), quantity(10e-3, 1e-3), False),  # perhaps only 1
            (quantity(0.5e-3), quantity(0.1e-3), False),  # less than 1 % of the step
            (quantity(3e-3, 1e-3), quantity(10e-3, 40e-3), False),  # exposed is not known
            (Quantity.without_interval(9e-3), quantity(10e-3), False),
        ],
        ids=str,
    )
    def test_only_what_is_surely_too_much(self, residual: Quantity, exposed: Quantity, doubted: bool):
        found = unexplained_communication(account(residual), exposed, quantity(0.1))
        assert (found is not None) == doubted
