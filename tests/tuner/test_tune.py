"""A search finds what is fast, names nothing that is not, keeps its time, and goes on after it was killed."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from scripted import Scripted, Told, a_space, a_tuner, all_the_same
from tune_example import tuned

from deepstone.absent import Absent
from deepstone.results.quantity import Quantity
from deepstone.results.tune import NOT_THE_SAME, AxisRatio, TuneLimit, TuneObjective
from deepstone.runner.standby import Standby
from deepstone.setups.axes import Value
from deepstone.setups.request import parse_words
from deepstone.setups.tuning import Facts
from deepstone.store.store import Store
from deepstone.tuner.doubts import beaten_without
from deepstone.tuner.emit import chosen_setup
from deepstone.tuner.quick_starts import QuickStarts
from deepstone.tuner.space import make_space
from deepstone.tuner.wanted import Wanted

THROUGHPUT = Wanted(objective=TuneObjective(name="throughput"), budget_s=300.0)


def speed(setup: Mapping[str, Value]) -> float:
    """The best is layout=nhwc precision=bf16-mixed, 1.3 x 1.2 x 1.2 the default; they need each other."""
    value = 100.0
    value *= 1.3 if setup.get("layout") == "nhwc" else 1.0
    value *= 1.2 if setup.get("precision") == "bf16-mixed" else 1.0
    value *= 1.2 if {"layout": "nhwc", "precision": "bf16-mixed"}.items() <= setup.items() else 1.0
    value *= {1: 0.4, 2: 0.7, 4: 1.0}.get(int(setup.get("threads", 4)), 1.0)
    return value * (0.8 if setup.get("engine") == "native" else 1.0)


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_it_finds_the_best_and_says_why(tmp_path: Path, noise: float) -> None:
    scripted = Scripted(space=a_space(), speed=speed, noise=noise)
    answer = a_tuner(scripted, tmp_path, THROUGHPUT).tune()
    assert answer.answer == "better"
    assert answer.best.setup == {"framework": "fake", "layout": "nhwc", "precision": "bf16-mixed"}
    assert not isinstance(answer.ratio, Absent)
    assert 0.999 * answer.ratio.low <= 1.3 * 1.2 * 1.2 <= 1.001 * answer.ratio.high
    parts = {each.axis: each for each in answer.why}
    assert set(parts) == {"layout", "precision"}
    # Each has its own factor and the root of what both need.
    assert parts["layout"].contribution.low <= 1.3 * 1.2**0.5 <= parts["layout"].contribution.high
    assert not isinstance(answer.together, Absent)
    assert 0.999 * answer.together.low <= 1 <= 1.001 * answer.together.high
    assert len(scripted.asked) == len(answer.looks) < 96


def test_a_single_change_has_the_whole_gain(tmp_path: Path) -> None:
    """By the same comparison, in the finals; not by looks."""

    def one_change(setup: Mapping[str, Value]) -> float:
        return 130.0 if setup.get("layout") == "nhwc" else 100.0

    scripted = Scripted(space=a_space(), speed=one_change, noise=0.02)
    answer = a_tuner(scripted, tmp_path, THROUGHPUT).tune()
    assert answer.best.setup == {"framework": "fake", "layout": "nhwc"}
    (why,) = answer.why
    assert not isinstance(why.added, Absent)
    assert not isinstance(why.removed, Absent)
    assert why.added.ratio == why.removed.ratio == answer.ratio
    assert not isinstance(answer.ratio, Absent)
    assert why.contribution.median == pytest.approx(answer.ratio.median)
    assert why.contribution.low == pytest.approx(answer.ratio.low)
    assert isinstance(answer.together, Absent)


def test_the_answer_comes_from_the_finals_alone(tmp_path: Path) -> None:
    scripted = Scripted(space=a_space(), speed=speed, noise=0.03)
    answer = a_tuner(scripted, tmp_path, THROUGHPUT).tune()
    finals = [look for look in answer.looks if look.kind == "final"]
    assert len(finals) == answer.rounds * len(answer.finals)
    assert len(answer.best.runs) == answer.rounds
    best = [look.run for look in finals if look.setup == answer.best.setup]
    assert best == answer.best.runs
    for round in range(1, answer.rounds + 1):
        assert {str(look.setup) for look in finals if look.round == round} == {str(f.setup) for f in answer.finals}


def test_on_a_flat_space_it_names_no_winner(tmp_path: Path) -> None:
    for seed in range(3):
        scripted = Scripted(space=a_space(), speed=lambda _setup: 100.0, noise=0.05)
        scripted.chance.seed(seed)
        answer = a_tuner(scripted, tmp_path / str(seed), replace_budget(200.0)).tune()
        assert answer.answer != "better"
        assert answer.best.setup == {"framework": "fake"}
        assert answer.why == []


@pytest.mark.parametrize(("launch_s", "rounds"), [(28.0, 2), (45.0, 1)])
def test_finals_that_the_time_cut_off_tell_what_was_measured(tmp_path: Path, launch_s: float, rounds: int) -> None:
    """Launches are slow once the finals begin. A few rounds give no interval over many powers of ten."""
    tuner = a_tuner(Scripted(space=a_space(), speed=speed, noise=0.03), tmp_path, THROUGHPUT)
    scripted: Any = tuner.workload
    scripted.took_s = lambda _setup: launch_s if tuner.log.order else 5.0
    answer = tuner.tune()
    assert (answer.rounds, answer.planned_rounds) == (rounds, len(tuner.log.order))
    assert f"{rounds} of " in answer.rounds_in_words
    assert answer.answer == ("better" if rounds == 2 else "not separable")
    measured = [answer.default.samples_per_s, *(final.samples_per_s for final in answer.finals)]
    known = [each for each in measured if not isinstance(each, Absent) and each.has_interval]
    assert all(each.high / each.low < 1.5 for each in known)
    ratios = [final.ratio for final in answer.finals if not final.is_default and not isinstance(final.ratio, Absent)]
    assert len(ratios) == len(answer.finals) - 1
    assert all(ratio.has_interval == (rounds > 1) for ratio in ratios)
    assert any("--budget" in doubt for doubt in answer.doubts)
    assert {each.n for each in measured if not isinstance(each, Absent)} == {rounds}


def test_a_change_that_harms_is_found_before_the_finals(tmp_path: Path) -> None:
    """Advice has a setup with a change too many, and there is no time to search."""
    best = {"layout": "nhwc", "precision": "bf16-mixed"}
    scripted = Scripted(space=a_space(), speed=speed, took_s=lambda _setup: 9.0)
    scripted.advised = ({"framework": "fake", **best, "engine": "native"},)
    answer = a_tuner(scripted, tmp_path, replace_budget(100.0)).tune()
    assert answer.answer == "better"
    assert answer.best.setup == {"framework": "fake", **best}


def test_a_change_that_looked_harmful_outside_the_finals_is_told() -> None:
    answer = tuned()
    assert beaten_without(answer) == []
    removed = AxisRatio(ratio=Quantity.of(median=0.8, low=0.6, high=1.1, n=3), estimated=False)
    harmful = replace(answer.why[0], removed=removed)
    told = beaten_without(replace(answer, why=[harmful, *answer.why[1:]]))
    assert "precision=bf16-mixed" in told[0]
    assert "1.25x" in told[0]
    for objective, ratio in (("memory", "0.8x the memory"), ("energy", "1.25x the samples per joule")):
        other = replace(answer, why=[harmful], objective=TuneObjective(name=objective))
        assert ratio in beaten_without(other)[0]
        assert "fast" not in beaten_without(other)[0]
    estimated = replace(harmful, removed=replace(removed, estimated=True))
    assert beaten_without(replace(answer, why=[estimated])) == []


def replace_budget(budget_s: float, **settings: Any) -> Wanted:
    return Wanted(objective=TuneObjective(name="throughput"), budget_s=budget_s, **settings)


def test_setups_that_fail_are_looks_like_any_other(tmp_path: Path) -> None:
    def fails(setup: Mapping[str, Value]) -> float | str:
        return "too little memory" if setup.get("compile") == "default" else speed(setup)

    scripted = Scripted(space=a_space(), speed=fails)
    answer = a_tuner(scripted, tmp_path, THROUGHPUT).tune()
    assert answer.best.setup == {"framework": "fake", "layout": "nhwc", "precision": "bf16-mixed"}
    failed = [look for look in answer.looks if look.outcome == "oom"]
    assert all(isinstance(look.samples_per_s, Absent) and look.run for look in failed)
    assert len(failed) < len(answer.looks) / 4


def test_a_default_that_fails_does_not_end_it(tmp_path: Path) -> None:
    def fails(setup: Mapping[str, Value]) -> float | str:
        return speed(setup) if setup.get("precision") == "bf16-mixed" else "too little memory"

    answer = a_tuner(Scripted(space=a_space(), speed=fails), tmp_path, THROUGHPUT).tune()
    assert answer.answer == "better"
    assert answer.best.setup["precision"] == "bf16-mixed"
    assert isinstance(answer.ratio, Absent)
    assert "does not run (oom: too little memory)" in answer.ratio.reason
    assert answer.is_better
    assert isinstance(answer.default.samples_per_s, Absent)


def test_a_default_that_ran_before_and_fails_in_the_finals_leaves_it_undecided(tmp_path: Path) -> None:
    launches = 0

    def fails_later(setup: Mapping[str, Value]) -> float | str:
        nonlocal launches
        launches += setup == {"framework": "fake"}
        return "it hung" if launches > 4 and setup == {"framework": "fake"} else speed(setup)

    answer = a_tuner(Scripted(space=a_space(), speed=fails_later), tmp_path, THROUGHPUT).tune()
    assert answer.answer == "not separable"
    assert any("it hung" in doubt for doubt in answer.doubts)


def test_finalists_that_all_fail_in_the_finals_leave_it_undecided(tmp_path: Path) -> None:
    seen: set[str] = set()

    def fails_again(setup: Mapping[str, Value]) -> float | str:
        is_new = str(setup) not in seen
        seen.add(str(setup))
        return speed(setup) if is_new or setup == {"framework": "fake"} else "it hung"

    answer = a_tuner(Scripted(space=a_space(), speed=fails_again), tmp_path, THROUGHPUT).tune()
    assert answer.answer == "not separable"
    assert any("it hung" in doubt for doubt in answer.doubts)


@pytest.mark.parametrize("is_proven", [True, False])
def test_who_asks_for_exact_gets_nothing_unproven(tmp_path: Path, is_proven: bool) -> None:
    """Not even a setup that changes only the order of operations, which the first steps of every run speak for."""

    def runs_out_of_time(
        default: Any, candidates: Any, level: Any, *, deadline_s: float, spares: Any = None, on_progress: Any = None
    ) -> Any:
        found = all_the_same(default, candidates, level, deadline_s=deadline_s)
        return {
            name: replace(same, ok=is_proven, alters=["order"], why_not="" if is_proven else "the time ran out")
            for name, same in found.items()
        }

    space = a_space({"precision": ["auto"]})
    answer = a_tuner(
        Scripted(space=space, speed=speed), tmp_path, replace(THROUGHPUT, level="exact"), check=runs_out_of_time
    ).tune()
    if is_proven:
        assert (answer.answer, answer.best.setup["layout"]) == ("better", "nhwc")
    else:
        assert answer.answer != "better"
        assert any("the time ran out" in doubt for doubt in answer.doubts)


def test_a_slow_default_leaves_time_for_another_look(tmp_path: Path) -> None:
    """Its launch took more than a quarter of the time, so finals as they should be do not fit."""
    scripted = Scripted(space=a_space(), speed=speed, took_s=lambda _setup: 11.0)
    scripted.advised = ({"framework": "fake", "layout": "nhwc", "precision": "bf16-mixed"},)
    answer = a_tuner(scripted, tmp_path, replace_budget(40.0)).tune()
    assert len({str(setup) for setup in scripted.asked}) > 1
    assert answer.budget.spent_s <= 1.2 * 40


def test_if_nothing_runs_it_says_so_before_the_time_is_over(tmp_path: Path) -> None:
    scripted = Scripted(space=a_space(), speed=lambda _setup: "no memory")
    answer = a_tuner(scripted, tmp_path, THROUGHPUT).tune()
    assert (answer.answer, answer.rounds) == ("not separable", 0)
    assert isinstance(answer.best.samples_per_s, Absent)
    assert len(scripted.asked) < 20


@pytest.mark.parametrize("longest_s", [5.0, 90.0, 1e6])
def test_it_keeps_its_time(tmp_path: Path, longest_s: float) -> None:
    """Even if some launches hang."""
    took = {"native": longest_s, "default": longest_s}

    def took_s(setup: Mapping[str, Value]) -> float:
        return max(5.0, took.get(str(setup.get("engine")), 0.0), took.get(str(setup.get("compile")), 0.0))

    scripted = Scripted(space=a_space(), speed=speed, took_s=took_s)
    answer = a_tuner(scripted, tmp_path, replace_budget(300.0)).tune()
    assert answer.budget.spent_s == scripted.clock.now_s <= 1.2 * 300.0
    assert answer.best.setup["layout"] == "nhwc"


@pytest.mark.parametrize("lives", [(1, 3, 4, 9), (7, 11, 20, 26)])
def test_killed_at_any_moment_it_goes_on(tmp_path: Path, lives: tuple[int, ...]) -> None:
    whole = a_tuner(Scripted(space=a_space(), speed=speed), tmp_path / "whole", THROUGHPUT).tune()
    store, log, spent = Store.open(tmp_path / "killed"), None, list[Mapping[str, Value]]()
    for die_after in lives:
        scripted = Scripted(space=a_space(), speed=speed, die_after=die_after - len(spent))
        with pytest.raises(KeyboardInterrupt):
            a_tuner(scripted, tmp_path / "killed", THROUGHPUT, log=log).tune()
        spent += scripted.asked
        log = store.tunes.get("a")
        assert log is not None
        assert [look.setup for look in log.looks] == spent
    answer = a_tuner(Scripted(space=a_space(), speed=speed), tmp_path / "killed", THROUGHPUT, log=log).tune()
    assert answer.best.setup == whole.best.setup
    assert answer.rounds == whole.rounds
    assert answer.budget.spent_s == pytest.approx(whole.budget.spent_s, rel=0.2)
    assert all(look.run and store.get(look.run) for look in answer.looks)


def test_nothing_imports_while_layers_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check before it may have taken the last worker that waited; those that replace it import."""
    told: list[str] = []

    class Importing(Standby):
        def settle(self) -> None:
            told.append("settled")

    class Timed(Scripted):
        def layers(self, point: Any, **_options: Any) -> Any:
            told.append("layers")
            raise KeyboardInterrupt

    def with_workers(*_: object) -> AbstractContextManager[QuickStarts]:
        return nullcontext(QuickStarts(standby=Importing(1)))

    monkeypatch.setattr("deepstone.tuner.tune.quick_starts", with_workers)
    monkeypatch.setattr("deepstone.tuner.tune.roofline_share", lambda *_: 0.5)
    with pytest.raises(KeyboardInterrupt):
        a_tuner(Timed(space=a_space(), speed=speed), tmp_path, THROUGHPUT).tune()
    assert told == ["settled", "layers"]


class Metered(Scripted):
    """nhwc is fast and takes much power; bf16 takes little memory."""

    def power(self, setup: Mapping[str, Value]) -> float:
        return 300.0 if setup.get("layout") == "nhwc" else 100.0

    def memory(self, setup: Mapping[str, Value]) -> int:
        return 2**29 if setup.get("precision") == "bf16-mixed" else 2**30


@pytest.mark.parametrize(
    ("objective", "limits", "best"),
    [
        (TuneObjective(name="energy"), (), {"precision": "bf16-mixed"}),
        pytest.param(TuneObjective(name="memory"), (), {"precision": "bf16-mixed"}, marks=pytest.mark.deep),
        (TuneObjective(name="energy", slowdown=1.05), (), {"layout": "nhwc", "precision": "bf16-mixed"}),
        (TuneObjective(name="throughput"), (TuneLimit(name="power", most=200.0),), {"precision": "bf16-mixed"}),
        (
            TuneObjective(name="throughput"),
            (TuneLimit(name="memory", most=2.0**29.5),),
            {"layout": "nhwc", "precision": "bf16-mixed"},
        ),
    ],
)
def test_objectives_and_limits(
    tmp_path: Path, objective: TuneObjective, limits: tuple[TuneLimit, ...], best: Mapping[str, Value]
) -> None:
    wanted = Wanted(objective=objective, limits=limits, budget_s=400.0)
    answer = a_tuner(Metered(space=a_space(), speed=speed), tmp_path, wanted).tune()
    asked = {name: value for name, value in answer.best.setup.items() if name in ("layout", "precision")}
    if objective.slowdown is not None:  # among the fast ones no other takes less
        assert asked == best or answer.answer != "better"
    else:
        assert asked == best


def test_a_free_batch_has_a_winner_of_its_own(tmp_path: Path) -> None:
    space = a_space({"batch": [32, 64, 128]})
    answer = a_tuner(Scripted(space=space, speed=larger_is_faster), tmp_path, THROUGHPUT).tune()
    assert answer.best.setup.get("batch", 32) == 32
    assert answer.best.setup["layout"] == "nhwc"
    assert not isinstance(answer.batch_free, Absent)
    assert answer.batch_free.batch == 128
    assert answer.batch_free.updates_per_epoch_ratio == 0.25


def larger_is_faster(setup: Mapping[str, Value]) -> float:
    return speed(setup) * {32: 1.0, 64: 1.3, 128: 1.5}[int(setup.get("batch", 32))]


@pytest.mark.parametrize("is_refuted", [False, True])
def test_a_winner_at_another_batch_is_proven_like_any_other(tmp_path: Path, is_refuted: bool) -> None:
    """At the batch that was asked for."""
    checked: list[Mapping[str, Value]] = []

    def differs(
        default: Any, candidates: Any, level: Any, *, deadline_s: float, spares: Any = None, on_progress: Any = None
    ) -> Any:
        checked.extend(job.request for job in candidates.values())
        found = all_the_same(default, candidates, level, deadline_s=deadline_s)
        narrow = {name for name, job in candidates.items() if job.request["precision"] == "bf16-mixed"}
        why = {"ok": False, "is_refuted": is_refuted, "why_not": "not shown", "alters": ["rounding"]}
        return {**found, **{name: replace(found[name], **why) for name in narrow}}

    space = a_space({"batch": [32, 64, 128]})
    tuner = a_tuner(Scripted(space=space, speed=larger_is_faster), tmp_path, THROUGHPUT, check=differs)
    answer = tuner.tune()
    assert checked
    assert {request["batch"] for request in checked} == {32}
    assert answer.best.setup.get("precision") is None
    assert isinstance(answer.batch_free, Absent) or answer.batch_free.best.setup.get("precision") is None
    if is_refuted:  # then the best without it is found
        assert answer.best.setup["layout"] == "nhwc"
        assert not isinstance(answer.batch_free, Absent)
    assert any("not shown" in doubt and "bf16-mixed" in doubt for doubt in answer.doubts)
    unproven = [each for each in answer.finals if each.setup.get("precision") == "bf16-mixed"]
    assert all(isinstance(each.ratio, Absent) and "training" in each.ratio.reason for each in unproven)


def test_the_best_at_the_batch_that_was_asked_for_is_in_the_finals(tmp_path: Path) -> None:
    """Also if other batches are so much faster that the search has no need to look there."""

    def much_faster(setup: Mapping[str, Value]) -> float:
        return speed(setup) * (1.0 if setup.get("batch", 32) == 32 else 5.0)

    for budget_s in (150.0, 300.0):
        space = a_space({"batch": [32, 64, 128]})
        answer = a_tuner(Scripted(space=space, speed=much_faster), tmp_path, replace_budget(budget_s)).tune()
        assert (answer.answer, answer.best.setup["layout"]) == ("better", "nhwc")
        batches = {int(final.setup.get("batch", 32)) for final in answer.finals if not final.is_default}
        assert 32 in batches
        assert len(batches) > 1


def test_eight_minutes_decide_two_batches_on_a_gpu(tmp_path: Path) -> None:
    """With what launches and speeds of ResNet-50 were on an H200 (results/h200/tune-resnet50-batches.jsonl). Its check
    took 140 s there."""

    def of_h200(setup: Mapping[str, Value]) -> float:
        narrow, is_large = setup.get("precision") == "bf16-mixed", setup.get("batch", 256) == 1024
        shuffled = 1.045 if setup.get("space_to_depth") == "on" else 1.0
        if setup.get("framework") == "jax":
            return (7068 if narrow else 4022) * shuffled * (1.11 if is_large else 1.0)
        is_compiled = setup.get("compile", "auto") not in ("auto", "off")
        by_layout = 1.95 if setup.get("layout") == "nhwc" and narrow else 1.0
        return (2418 if narrow else 2210) * by_layout * (1.45 if is_compiled else 1.0) * (1.065 if is_large else 1.0)

    def compile_s(setup: Mapping[str, Value]) -> float:
        is_large = setup.get("batch", 256) == 1024
        if setup.get("framework") == "jax":
            return 50.0 if is_large else 15.0
        return (60.0 if is_large else 45.0) if setup.get("compile", "auto") not in ("auto", "off") else 1.5

    def takes_long(default: Any, candidates: Any, level: Any, *, deadline_s: float, **_: Any) -> Any:
        scripted.clock.now_s += 140.0
        return all_the_same(default, candidates, level, deadline_s=deadline_s)

    space = make_space(
        parse_words(["batch=256,1024"]),
        Facts(device="gpu", cores=16, gpus=1, frameworks=("torch", "jax"), batch=256, has_batch_norm=True),
    )
    scripted = Scripted(space=space, speed=of_h200, noise=0.003, took_s=lambda _setup: 14.0, compile_s=compile_s)
    answer = a_tuner(scripted, tmp_path, replace_budget(480.0), check=takes_long).tune()
    best = {"framework": "jax", "precision": "bf16-mixed", "space_to_depth": "on"}
    assert answer.answer == "better"
    assert best.items() <= answer.best.setup.items()
    assert answer.best.setup["batch"] == 256
    assert not isinstance(answer.batch_free, Absent)
    assert {**best, "batch": 1024}.items() <= answer.batch_free.best.setup.items()
    assert answer.rounds >= 2


def test_a_small_budget_on_a_gpu_is_not_spent_on_finals_of_what_is_slower(tmp_path: Path) -> None:
    """With what launches and speeds of Inception-v3 were on an H200 (results/h200/tune-undecided.jsonl): its compiler
    needs more than a fifth of this time, and JAX is not installed."""

    def of_h200(setup: Mapping[str, Value]) -> float:
        precision = setup.get("precision")
        if precision in ("fp32", "tf32"):
            return 583 if precision == "fp32" else 1117
        return 1117 * (1.1 if precision == "bf16-mixed" else 1.0) * (1.6 if setup.get("layout") == "nhwc" else 1.0)

    space = make_space(
        parse_words(["batch=128"]),
        Facts(device="gpu", cores=16, gpus=1, frameworks=("torch",), batch=128, has_batch_norm=True),
    )

    def compile_s(setup: Mapping[str, Value]) -> float:
        return 80.0 if setup.get("compile", "auto") not in ("auto", "off") else 1.5

    scripted = Scripted(space=space, speed=of_h200, noise=0.003, took_s=lambda _setup: 12.0, compile_s=compile_s)
    answer = a_tuner(scripted, tmp_path, replace_budget(285.0)).tune()
    assert answer.answer == "better"
    assert answer.best.setup["layout"] == "nhwc"
    assert answer.budget.spent_s <= 1.2 * 285


def test_a_search_goes_on_while_nothing_is_faster_than_the_default(tmp_path: Path) -> None:
    """Where setups follow no rule, any may still be better. Finals of slower ones tell little; they keep their time."""

    def one_of_its_own(setup: Mapping[str, Value]) -> float:
        return 80.0 + zlib.crc32(repr(sorted(setup.items())).encode()) % 20 if len(setup) > 1 else 100.0

    scripted = Scripted(space=a_space(), speed=one_of_its_own, noise=0.005)
    answer = a_tuner(scripted, tmp_path, replace_budget(120.0)).tune()
    assert answer.answer == "nothing better"
    assert answer.rounds >= 3
    assert answer.budget.spent_s <= 120
    assert max(look.began_s for look in answer.looks if look.kind in ("search", "sentinel")) >= 0.5 * 120


@pytest.mark.parametrize("compile", ["off", "default"])
def test_only_a_setup_that_compiles_is_told_to_be_compiled_unevenly(tmp_path: Path, compile: str) -> None:
    """On a GPU, where the finals compile anew. Both setups are 7 % slower there."""
    fixed = {"framework": "torch", "device": "gpu", "batch": 32, "compile": compile, "layout": "auto,nhwc"}
    others = ("precision", "engine", "algorithm", "threads", "inter_threads", "affinity", "isa", "allocator", "wait")
    words = [*(f"{name}={value}" for name, value in fixed.items()), *(f"{name}=auto" for name in others)]
    words += ["processes=1", "accumulate=1", "optimizer=momentum", "space_to_depth=off", "power_limit=auto"]
    space = make_space(parse_words(words), Facts(device="gpu", cores=4, gpus=1, frameworks=("torch",)))

    def slower_in_finals(setup: Mapping[str, Value]) -> float:
        return 100.0 if setup.get("layout") != "nhwc" else 121.0 if tuner.log.order else 130.0

    tuner = a_tuner(Scripted(space=space, speed=slower_in_finals), tmp_path, THROUGHPUT)
    answer = tuner.tune()
    assert (answer.answer, answer.best.setup["layout"]) == ("better", "nhwc")
    about = [doubt for doubt in answer.doubts if "layout=nhwc" in doubt and "search" in doubt]
    assert len(about) == (compile == "default")
    assert all("0.931x" in doubt for doubt in about)


def test_a_setup_that_trains_something_else_is_out(tmp_path: Path) -> None:
    def differs(
        default: Any, candidates: Any, level: Any, *, deadline_s: float, spares: Any = None, on_progress: Any = None
    ) -> Any:
        found = all_the_same(default, candidates, level, deadline_s=deadline_s)
        return {name: replace(same, ok=False, is_refuted=True, why_not="other losses") for name, same in found.items()}

    tuner = a_tuner(Scripted(space=a_space(), speed=speed), tmp_path, THROUGHPUT, check=differs)
    answer = tuner.tune()
    assert (answer.answer, answer.best.setup) == ("nothing better", {"framework": "fake"})
    assert isinstance(tuner.progress, Told)
    assert any("other losses" in line for line in tuner.progress.said)
    assert any("other losses" in doubt for doubt in answer.doubts)
    refused = [look for look in answer.looks if isinstance(look.samples_per_s, Absent)]
    assert {look.setup.get("precision") for look in refused} >= {"bf16-mixed"}
    assert all(look.samples_per_s.reason == f"{NOT_THE_SAME}other losses" for look in refused)  # type: ignore[union-attr]
    # What is refused is not written either, though it was faster.
    assert chosen_setup(answer, "fake", lambda _setup: "fake", "images").setup == answer.default.setup


def test_if_the_best_trains_something_else_the_next_best_may_win(tmp_path: Path) -> None:
    def differs(
        default: Any, candidates: Any, level: Any, *, deadline_s: float, spares: Any = None, on_progress: Any = None
    ) -> Any:
        found = all_the_same(default, candidates, level, deadline_s=deadline_s)
        narrow = {name for name, job in candidates.items() if job.request["precision"] == "bf16-mixed"}
        other = {name: replace(found[name], ok=False, is_refuted=True, why_not="other losses") for name in narrow}
        return {**found, **other}

    answer = a_tuner(Scripted(space=a_space(), speed=speed), tmp_path, THROUGHPUT, check=differs).tune()
    assert (answer.answer, answer.best.setup) == ("better", {"framework": "fake", "layout": "nhwc"})
    assert any("other losses" in doubt and "bf16-mixed" in doubt for doubt in answer.doubts)


@pytest.mark.parametrize("rounds", [False, True])
@pytest.mark.parametrize("second_time", [False, True])
def test_rounding_that_is_not_proven_harmless_does_not_win(tmp_path: Path, rounds: bool, second_time: bool) -> None:
    """The winner is checked again, alone; a change of order alone is proven by the runs themselves."""
    asked: list[int] = []

    def unproven(
        default: Any, candidates: Any, level: Any, *, deadline_s: float, spares: Any = None, on_progress: Any = None
    ) -> Any:
        asked.append(len(candidates))
        found = all_the_same(default, candidates, level, deadline_s=deadline_s)
        if second_time and len(asked) > 1:
            return found
        alters = ["order", "rounding"] if rounds else ["order"]
        return {name: replace(same, ok=False, why_not="no time", alters=alters) for name, same in found.items()}

    tuner = a_tuner(Scripted(space=a_space(), speed=speed), tmp_path, THROUGHPUT, check=unproven)
    answer = tuner.tune()
    if not rounds:
        assert (answer.answer, len(asked)) == ("better", 1)
        return
    assert asked[1] == 1
    if second_time:
        assert answer.answer == "better"
        return
    assert answer.answer == "not separable"
    assert any("not proven" in doubt and "no time" in doubt for doubt in answer.doubts)


def test_it_begins_where_the_rules_of_advice_point(tmp_path: Path) -> None:
    scripted = Scripted(space=a_space(), speed=speed, advised=({"framework": "fake", "layout": "nhwc"},))
    a_tuner(scripted, tmp_path, THROUGHPUT).tune()
    assert [setup.get("layout") for setup in scripted.asked[:2]] == [None, "nhwc"]
