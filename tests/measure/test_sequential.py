"""How many groups a comparison takes, and how seldom it names a false winner, whatever launches differ by."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from deepstone.measure import statistics
from deepstone.measure.sequential import LOOKS, MOST_GROUPS, Group, SidesRatio, ranking, ratios_of_sides
from deepstone.measure.statistics import Quantity

HERE = Path(__file__).parent
Draw = Callable[[], Group]


@pytest.fixture(autouse=True)
def _fewer_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "REPLICATES", 100)


def compared(draw: Draw) -> tuple[tuple[SidesRatio, ...], list[Group]]:
    groups: list[Group] = []
    ratios: tuple[SidesRatio, ...] = ()
    for look in LOOKS:
        groups += [draw() for _ in range(look - len(groups))]
        ratios = ratios_of_sides(groups, looks=len(LOOKS))
        if all(ratio.is_settled for ratio in ratios):
            break
    return ratios, groups


def launches(random: np.random.Generator, spread: float, *true: float) -> Draw:
    return lambda: [[[float(time)]] for time in np.array(true) * np.exp(random.normal(0, spread, len(true)))]


def false_winners(draw: Draw, count: int) -> float:
    return sum(any(ratio.winner is not None for ratio in compared(draw)[0]) for _ in range(count)) / count


@pytest.mark.parametrize("spread", [0.001, 0.01, 0.04, 0.08])
@pytest.mark.parametrize("sides", [2, 3])
def test_identical_setups_have_no_winner_whatever_launches_differ_by(spread: float, sides: int) -> None:
    draw = launches(np.random.default_rng(1), spread, *[1.0] * sides)
    assert false_winners(draw, 60 if sides == 2 else 20) <= 0.05


@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_going_on_while_an_interval_is_wide_names_no_false_winners(
    spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All looks share the 5 %. So few replicates as elsewhere here miss the ends of such wide intervals."""
    monkeypatch.setattr(statistics, "REPLICATES", 1000)
    assert false_winners(launches(np.random.default_rng(8), spread, 1.0, 1.0), 60) <= 0.05


def ratio(low: float, high: float) -> SidesRatio:
    return SidesRatio(a=0, b=1, time_ratio=Quantity.of(median=(low * high) ** 0.5, low=low, high=high, n=3))


def test_a_winner_by_a_wide_interval_is_not_settled() -> None:
    assert ratio(3.59, 396.0).winner == 1
    assert ratio(3.59, 396.0).is_wide
    assert not ratio(3.59, 396.0).is_settled
    assert ratio(3.59, 7.1).is_settled
    assert not ratio(0.2, 0.41).is_settled
    assert ratio(0.2, 0.39).is_settled


def test_a_disturbed_machine_takes_more_groups_than_a_winner_needs() -> None:
    found = [compared(launches(np.random.default_rng(seed), 0.3, 40.0, 1.0)) for seed in range(10)]
    assert np.median([len(groups) for _, groups in found]) > LOOKS[0]
    assert all(ratios[0].winner == 1 for ratios, _ in found)
    assert all(len(groups) == MOST_GROUPS or not ratios[0].is_wide for ratios, groups in found)


def test_launches_of_two_kinds_make_no_winner() -> None:
    random = np.random.default_rng(2)
    draw: Draw = lambda: [[[float(time)]] for time in random.choice([1.0, 1.05], 2) * random.normal(1, 0.001, 2)]  # noqa: E731
    assert false_winners(draw, 60) <= 0.05


@pytest.mark.parametrize("recording", ["recorded_pairs.json", "recorded_pairs_busy.json"])
def test_recorded_pairs_of_identical_launches_have_no_winner(recording: str) -> None:
    pairs = json.loads((HERE / recording).read_text())["pairs"]
    random = np.random.default_rng(3)

    def draw() -> Group:
        pair = [[block[:4] for block in launch] for launch in pairs[random.integers(len(pairs))]]
        return pair if random.random() < 0.5 else pair[::-1]

    assert false_winners(draw, 40) <= 0.05


@pytest.mark.parametrize(("spread", "most"), [(0.001, 3), (0.003, 4)])
def test_launches_that_agree_need_few_groups(spread: float, most: int) -> None:
    draw = launches(np.random.default_rng(4), spread, 1.0, 1.0)
    assert np.median([len(compared(draw)[1]) for _ in range(20)]) <= most


def test_launches_that_disagree_take_all_groups() -> None:
    draw = launches(np.random.default_rng(5), 0.04, 1.0, 1.0)
    assert np.median([len(compared(draw)[1]) for _ in range(10)]) == MOST_GROUPS


def test_a_true_difference_is_found() -> None:
    draw = launches(np.random.default_rng(6), 0.02, 1.1, 1.0)
    assert sum(compared(draw)[0][0].winner == 1 for _ in range(20)) >= 18


def test_sides_are_ranked_from_the_fastest_and_those_alike_together() -> None:
    ratios, groups = compared(launches(np.random.default_rng(7), 0.001, 1.2, 1.0, 1.201, 1.5))
    ranks = ranking(groups, ratios)
    assert [sorted(rank) for rank in ranks] == [[1], [0, 2], [3]]
