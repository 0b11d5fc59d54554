"""Whatever the budget, all transfers together fit into it, and no size is left out without need."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deepstone.scaling.turns import FEWEST_BLOCKS, ROUNDS, Key, Pace, Schedule, schedule

SIZES = [1024 * 4**power for power in range(9)]


def keys(lanes: int = 1) -> list[Key]:
    return [Key(lane=lane, operation="allreduce", bytes=size) for lane in range(lanes) for size in SIZES]


def planned(once_s: dict[Key, float], *, budget_s: float, launches: int) -> Schedule:
    paces = {key: Pace(once_s=seconds, least_s=seconds) for key, seconds in once_s.items()}
    return schedule(paces, budget_s=budget_s, launches=launches)


@given(st.lists(st.floats(1e-6, 10.0), min_size=18, max_size=18), st.floats(0.5, 60.0), st.integers(1, 5))
def test_it_ends_within_the_budget(times: list[float], budget_s: float, launches: int) -> None:
    once_s = dict(zip(keys(2), times, strict=True))
    found = planned(once_s, budget_s=budget_s, launches=launches)
    assert found.turns.keys() | set(found.left_out) == once_s.keys()
    spent_s = 0.0
    for key, turns in found.turns.items():
        assert turns.rounds * launches >= FEWEST_BLOCKS
        spent_s += launches * turns.rounds * (1 + turns.samples * turns.steps_per_sample) * once_s[key]
    one_each = len({(key.lane, key.operation) for key in found.turns}) == len(found.turns)
    assert spent_s <= 1.5 * budget_s or one_each


def test_what_is_short_runs_in_every_round_and_what_is_long_in_fewer() -> None:
    once_s = {key: 1e-9 * key.bytes for key in keys()} | {Key(lane=0, operation="p2p", bytes=SIZES[-1]): 1.0}
    found = planned(once_s, budget_s=20.0, launches=3)
    assert found.left_out == ()
    assert found.turns[keys()[0]].rounds == ROUNDS
    assert found.turns[Key(lane=0, operation="p2p", bytes=SIZES[-1])].rounds < ROUNDS


def test_the_largest_size_is_left_out_first() -> None:
    found = planned({key: 1e-7 * key.bytes for key in keys()}, budget_s=2.0, launches=1)
    assert [key.bytes for key in found.left_out] == sorted((key.bytes for key in found.left_out), reverse=True)
    assert found.left_out[0].bytes == SIZES[-1]
    assert keys()[0] in found.turns


def test_a_sample_is_long_enough_for_the_clock() -> None:
    key = keys()[0]
    for once_s in (2e-6, 1e-3):  # one that was slow when it was tried must not make a sample of a few calls
        pace = Pace(once_s=once_s, least_s=2e-6)
        turns = schedule({key: pace}, budget_s=1.0, launches=1).turns[key]
        assert turns.steps_per_sample * 2e-6 >= 1e-3
