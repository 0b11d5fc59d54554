"""The clock of another machine on ours: what was planted is found, and never further off than its error says."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.measure.clocks import PINGS, Alignment, Ping, Reading, error_between, reading
from deepstone.measure.doubts import clock_unaligned
from deepstone.measure.skew import skew_of
from deepstone.results.quantity import Quantity
from deepstone.results.record import Block


def pings(begin_s: float, offset_s: float, drift: float, *, seed: int, count: int = PINGS) -> list[Ping]:
    """Both ways take a while, not the same one, and now and then much longer."""
    chance, now_s, found = random.Random(seed), begin_s, list[Ping]()
    for _ in range(count):
        there_s, back_s = (5e-5 + chance.expovariate(1 / 2e-5) * chance.choice((1, 1, 1, 50)) for _ in range(2))
        middle_s = now_s + there_s
        theirs_s = middle_s * (1 + drift) + offset_s
        found.append(Ping(sent_s=now_s, answered_s=theirs_s, received_s=middle_s + back_s))
        now_s = middle_s + back_s + 1e-5
    return found


@given(
    offset_s=st.floats(-1e6, 1e6),
    drift=st.floats(-1e-3, 1e-3),
    seed=st.integers(0, 10_000),
    share=st.floats(0, 1),
    length_s=st.floats(0.5, 600),
)
def test_times_are_never_further_off_than_the_error(
    offset_s: float, drift: float, seed: int, share: float, length_s: float
):
    begin_s = 1000.0
    before = reading(pings(begin_s, offset_s, drift, seed=seed))
    after = reading(pings(begin_s + length_s, offset_s, drift, seed=seed + 1))
    clock = Alignment().with_reading(before).with_reading(after)
    true_s = begin_s + share * length_s
    inside = min(max(true_s * (1 + drift) + offset_s, before.at_s), after.at_s)
    true_s = (inside - offset_s) / (1 + drift)
    rounding_s = 1e-9 * max(1.0, abs(offset_s)) * 1e-3
    assert abs(clock.ours(inside) - true_s) <= clock.error_s + rounding_s + abs(drift) * clock.error_s * 2
    assert clock.error_s < 2e-4  # the shortest of many round trips, not the mean


@given(seed=st.integers(0, 10_000), drift=st.floats(-1e-3, 1e-3))
def test_the_drift_is_found(seed: int, drift: float):
    clock = Alignment()
    for begin_s in (0.0, 50.0, 100.0):
        clock = clock.with_reading(reading(pings(begin_s, 7.0, drift, seed=seed + int(begin_s))))
    assert clock.drift == pytest.approx(drift, abs=5e-6)
    assert clock.offset_s == pytest.approx(7.0, abs=1e-3)


def test_between_readings_it_changes_linearly_and_beyond_them_not():
    first, last = (Reading(at_s=at_s, offset_s=offset_s, error_s=1e-3) for at_s, offset_s in ((10, 1.0), (20, 2.0)))
    clock = Alignment(readings=(first, last))
    assert [clock.ours(at_s) for at_s in (5, 10, 15, 20, 30)] == [4, 9, 13.5, 18, 28]


def test_one_clock_needs_no_reading():
    clock = Alignment()
    assert clock.is_shared
    assert (clock.ours(3.25), clock.error_s, clock.drift) == (3.25, 0, 0)


def test_the_error_of_a_difference_is_that_of_both():
    clocks = [Alignment(readings=(Reading(at_s=0, offset_s=0, error_s=error_s),)) for error_s in (0.3, 0.1, 0.2)]
    assert error_between(clocks) == pytest.approx(0.5)
    assert error_between([Alignment(), clocks[0]]) == pytest.approx(0.3)


class TestWhatIsTold:
    first, second = (Block(start_s=start_s, steps_per_sample=1, step_s=[1.0] * 9) for start_s in (0.0, 0.2))
    blocks = ([first, second],) * 3

    def test_differences_below_the_error_are_not_resolved(self):
        sure = skew_of([self.blocks], error_s=0.1)
        assert isinstance(sure.spread_s, Quantity)
        assert sure.spread_s.median == pytest.approx(0.2)
        unsure = skew_of([self.blocks], error_s=0.3)
        assert "not resolved" in str(unsure.spread_s)
        assert all("not resolved" in str(each) for each in unsure.behind_s)

    def test_an_error_that_shows_in_steps_is_doubted(self):
        step = Quantity.of(median=0.01, low=0.009, high=0.011, n=10)
        assert clock_unaligned(0.0, step) is None
        assert clock_unaligned(1e-4, step) is None
        found = clock_unaligned(3e-4, step)
        assert found is not None
        assert found.code == "clock_unaligned"
