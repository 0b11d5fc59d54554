"""What makes the answer of a search less sure is said, and what it says is what was measured."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from tune_example import tuned

from deepstone.absent import Absent
from deepstone.results.quantity import Quantity
from deepstone.results.record import Effect, Setup
from deepstone.results.tune import NOT_THE_SAME, Finalist, Tuned, TuneObjective
from deepstone.setups.tuning import Facts
from deepstone.tuner.doubts import (
    chooses_kernels,
    compiled_unevenly,
    failed_finalists,
    kin_of_refused,
    other_machine_state,
    uneven_rounds,
)


def with_rounds(default: Sequence[float], best: Sequence[float | Absent]) -> Tuned:
    answer = tuned()
    finals = [
        replace(final, rounds=list(default) if final.is_default else list(best))
        for final in answer.finals
        if final.is_default or final.is_best
    ]
    return replace(answer, finals=finals, rounds=len(default))


def speeds_in_search(answer: Tuned, finalist: Finalist, times: float) -> Tuned:
    looks = [
        replace(look, samples_per_s=look.samples_per_s * times)
        if look.kind != "final" and look.setup == finalist.setup and not isinstance(look.samples_per_s, Absent)
        else look
        for look in answer.looks
    ]
    return replace(answer, looks=looks)


def test_a_disturbed_round_is_told() -> None:
    assert uneven_rounds(with_rounds([40.0, 41.0, 40.0], [103.0, 102.0, 104.0])) == []
    [doubt] = uneven_rounds(with_rounds([40.3, 23.1, 39.9], [103.0, 102.0, 102.0]))
    assert "round 2" in doubt
    assert "4.42x" in doubt
    assert "2.56x" in doubt


def test_a_disturbed_round_of_speeds_is_no_doubt_about_memory() -> None:
    uneven = with_rounds([40.3, 23.1, 39.9], [103.0, 102.0, 102.0])
    assert uneven_rounds(replace(uneven, objective=TuneObjective(name="memory"))) == []


def test_of_two_rounds_nobody_can_tell_which_was_disturbed() -> None:
    assert uneven_rounds(with_rounds([40.0, 23.0], [103.0, 102.0])) == []


def test_a_finalist_that_failed_in_the_finals_is_told() -> None:
    answer = tuned()
    finals = [look for look in answer.looks if look.kind == "final" and look.round == 2]
    failed = replace(finals[0], outcome="timeout", samples_per_s=Absent("timeout: it hung"))
    looks = [failed if look is finals[0] else look for look in answer.looks]
    [doubt] = failed_finalists(replace(answer, looks=looks))
    assert "round 2" in doubt
    assert "it hung" in doubt
    assert failed_finalists(tuned()) == []


def test_finals_that_contradict_the_search_are_told() -> None:
    answer = tuned()
    best = next(final for final in answer.finals if final.is_best)
    assert other_machine_state(answer) == []
    [doubt] = other_machine_state(speeds_in_search(answer, best, 0.5))
    assert "in the search" in doubt


def test_what_compiles_nothing_is_judged_by_what_the_machine_may_do() -> None:
    """A difference of a tenth is luck of a compiler, or nothing; one of a half is told of both in their own words."""
    answer = tuned()
    best = next(final for final in answer.finals if final.is_best)
    for times, eager in ((0.9, 0), (0.5, 1)):
        uneven = speeds_in_search(answer, best, times)
        assert compiled_unevenly(uneven, []) == []
        assert len(other_machine_state(uneven, [])) == eager
        assert len(compiled_unevenly(uneven, [best])) == 1
        assert other_machine_state(uneven, [best]) == []


@pytest.mark.parametrize(
    ("effective", "chooses"),
    [
        ({"compile": "off", "engine": "cudnn", "algorithm": "heuristic"}, False),
        ({"compile": "graph", "engine": "cudnn", "algorithm": "heuristic"}, False),
        ({"compile": "default", "engine": "cudnn", "algorithm": "heuristic"}, True),
        ({"compile": "off", "engine": "xla", "algorithm": "heuristic"}, True),
        ({"compile": "off", "engine": "cudnn", "algorithm": "benchmark-all"}, True),
        ({}, False),
    ],
)
def test_what_took_effect_says_whether_a_setup_compiles(effective: dict[str, str], chooses: bool) -> None:
    effects = {name: Effect(value=value, source="observed") for name, value in effective.items()}
    assert chooses_kernels(Setup(requested={"compile": "auto", "algorithm": "auto"}, effects=effects)) == chooses


def test_a_gain_says_what_it_is_a_gain_of() -> None:
    """Eight hundredths less memory are no 1.08 times of anything that is read as speed."""
    ratio = Quantity.of(median=1.08, low=1.04, high=1.12, n=3)
    answer = tuned()
    assert answer.gain_in_words(ratio) == "1.08x (1.04 – 1.12) the default"
    of_memory = replace(answer, objective=TuneObjective(name="memory")).gain_in_words(ratio)
    assert of_memory == "0.926x (0.893 – 0.962) the memory of the default"
    of_energy = replace(answer, objective=TuneObjective(name="energy")).gain_in_words(ratio)
    assert "joule" in of_energy


@pytest.mark.parametrize(("more", "is_told"), [({"wait": "active"}, True), ({"precision": "bf16-mixed"}, False)])
def test_a_finalist_is_doubted_whose_like_was_refused(more: dict[str, str], is_told: bool) -> None:
    """With rounding on top, that may be why."""
    answer = tuned()
    finalist = replace(next(final for final in answer.finals if final.is_best), setup={"layout": "nhwc"})
    refused = Absent(f"{NOT_THE_SAME}the last steps compute no gradient of conv1")
    looks = [replace(answer.looks[0], setup={"layout": "nhwc", **more}, samples_per_s=refused)]
    doubts = kin_of_refused(looks, [finalist], Facts(device="cpu", cores=2))
    assert bool(doubts) == is_told
    assert all("layout=nhwc wait=active" in doubt for doubt in doubts)
    assert kin_of_refused(looks, [replace(finalist, setup={"layout": "nchw"})], Facts(device="cpu")) == []
