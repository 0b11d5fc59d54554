"""One launch that fails, one meter that stands still, or a limit that nobody can read names no winner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from scripted import Scripted, a_space, a_tuner, all_the_same

from deepstone.absent import Absent
from deepstone.errors import UsageError
from deepstone.exchange.load import load_model
from deepstone.results.record import Training
from deepstone.results.tune import SameMeasure, Tuned, TuneLimit, TuneObjective
from deepstone.setups.axes import Value
from deepstone.store.store import Store
from deepstone.tuner.finals import judge
from deepstone.tuner.wanted import Wanted
from deepstone.tuner.workload import Looked

THROUGHPUT = Wanted(objective=TuneObjective(name="throughput"), budget_s=300.0)
OWN_MODEL = Path(__file__).parents[2] / "examples" / "my_model.py"
DEFAULT: Mapping[str, Value] = {"framework": "fake"}
Speed = Callable[[Mapping[str, Value]], float | str]


def only_the_default_is_fast(setup: Mapping[str, Value]) -> float | str:
    return 100.0 if setup == DEFAULT else 80.0


class Disturbed(Scripted):
    """Some launches of the finals are spoilt. `spoils`: by the number of the launch of this setup in the finals."""

    spoils: Callable[[Looked], Looked]
    numbers: tuple[int, ...] = (1,)
    setup: Mapping[str, Value] = DEFAULT

    def look(self, point: Any, *, energy_s: float = 0.0, **options: Any) -> Looked:
        found = super().look(point, **options)
        is_final = energy_s >= 10.0 if self.reads_energy else self.finals_began()
        if self.space.given(point) == self.setup and is_final:
            self.number += 1
            return self.spoils(found) if self.number in self.numbers else found
        return found

    reads_energy = False
    number = 0
    finals_began: Callable[[], bool]


def spoilt(
    tmp_path: Path, wanted: Wanted, speed: Speed, spoils: Callable[[Looked], Looked], numbers: tuple[int, ...]
) -> tuple[Tuned, Disturbed]:
    scripted = Disturbed(space=a_space(), speed=speed)
    scripted.spoils, scripted.numbers = spoils, numbers
    scripted.reads_energy = wanted.needs_energy
    tuner = a_tuner(scripted, tmp_path, wanted)
    scripted.finals_began = lambda: bool(tuner.log.finalists)
    return tuner.tune(), scripted


def out_of_memory(found: Looked) -> Looked:
    return replace(found, outcome="oom", reason="too little memory", samples_per_s=None)


def without_energy(found: Looked) -> Looked:
    return replace(found, samples_per_j=Absent("the meter stood still"))


def slightly_larger(found: Looked) -> Looked:
    return replace(found, peak_bytes=2**20 + 1024)


@pytest.mark.parametrize(
    ("wanted", "spoils"),
    [
        (THROUGHPUT, out_of_memory),
        (replace(THROUGHPUT, limits=(TuneLimit(name="memory", most=2.0**20),)), slightly_larger),
        (replace(THROUGHPUT, objective=TuneObjective(name="energy")), without_energy),
    ],
)
def test_one_spoilt_launch_of_the_default_makes_no_slower_setup_better(
    tmp_path: Path, wanted: Wanted, spoils: Callable[[Looked], Looked]
) -> None:
    answer, scripted = spoilt(tmp_path, wanted, only_the_default_is_fast, spoils, (1,))
    assert scripted.number > 1
    assert answer.answer == "nothing better"
    assert answer.best.setup == DEFAULT
    assert answer.rounds == answer.planned_rounds


@pytest.mark.parametrize(
    ("numbers", "rounds", "said"),
    [((1, 2), 0, "not separable"), ((2, 3), 1, "not separable"), ((3, 4), 2, "nothing better")],
)
def test_a_default_that_keeps_failing_ends_the_finals(
    tmp_path: Path, numbers: tuple[int, ...], rounds: int, said: str
) -> None:
    """What was measured to the end still counts."""
    answer, scripted = spoilt(tmp_path, THROUGHPUT, only_the_default_is_fast, out_of_memory, numbers)
    assert (answer.answer, answer.rounds) == (said, rounds)
    assert scripted.number == max(numbers)
    assert any("too little memory" in doubt for doubt in answer.doubts)


def test_a_meter_that_stood_still_is_told(tmp_path: Path) -> None:
    wanted = replace(THROUGHPUT, objective=TuneObjective(name="energy"))
    answer, _ = spoilt(tmp_path, wanted, only_the_default_is_fast, without_energy, (1,))
    assert any("stood still" in doubt for doubt in answer.doubts)


def test_rounds_in_which_nothing_was_measured_do_not_count(tmp_path: Path) -> None:
    seen: set[str] = set()

    def fails_again(setup: Mapping[str, Value]) -> float | str:
        is_new = str(setup) not in seen
        seen.add(str(setup))
        return 100.0 if is_new else "it hung"

    answer = a_tuner(Scripted(space=a_space(), speed=fails_again), tmp_path, THROUGHPUT).tune()
    assert answer.rounds == 0
    assert not answer.is_better


class Unread(Scripted):
    def look(self, point: Any, **options: Any) -> Looked:
        found = super().look(point, **options)
        if self.space.given(point).get("layout") == "nhwc":
            return replace(found, peak_bytes=Absent("nobody tells"), samples_per_j=Absent("no meter"))
        return found


@pytest.mark.parametrize("limit", [TuneLimit(name="memory", most=2.0**21), TuneLimit(name="power", most=200.0)])
def test_a_limit_that_cannot_be_read_is_not_kept(tmp_path: Path, limit: TuneLimit) -> None:
    def nhwc_is_fast(setup: Mapping[str, Value]) -> float | str:
        return 200.0 if setup.get("layout") == "nhwc" else 120.0 if setup.get("compile") == "default" else 100.0

    wanted = replace(THROUGHPUT, limits=(limit,))
    answer = a_tuner(Unread(space=a_space(), speed=nhwc_is_fast), tmp_path, wanted).tune()
    assert answer.is_better
    assert answer.best.setup == {**DEFAULT, "compile": "default"}


class Thrifty(Scripted):
    """nhwc takes half the energy and the memory at the speed of the default."""

    def power(self, setup: Mapping[str, Value]) -> float:
        return (50.0 if setup.get("layout") == "nhwc" else 100.0) * (4.0 if setup.get("compile") == "default" else 1.0)

    def memory(self, setup: Mapping[str, Value]) -> int:
        return 2**19 if setup.get("layout") == "nhwc" else 2**20


def narrow_is_other_training(default: Any, candidates: Any, level: Any, **options: Any) -> Any:
    found = all_the_same(default, candidates, level, deadline_s=options["deadline_s"])
    why = {"ok": False, "is_refuted": True, "why_not": "not the same", "alters": ["rounding"]}
    narrow = {name for name, job in candidates.items() if job.request["precision"] == "bf16-mixed"}
    return {**found, **{name: replace(found[name], **why) for name in narrow}}


THRIFT = Wanted(objective=TuneObjective(name="energy", slowdown=1.05), budget_s=400.0)


def test_a_setup_that_is_other_training_is_not_the_fastest(tmp_path: Path) -> None:
    def narrow_is_fast(setup: Mapping[str, Value]) -> float | str:
        return 200.0 if setup.get("precision") == "bf16-mixed" else 100.0

    space = a_space({"threads": ["auto"], "engine": ["auto"], "compile": ["auto"]})
    answer = a_tuner(
        Thrifty(space=space, speed=narrow_is_fast), tmp_path, THRIFT, check=narrow_is_other_training
    ).tune()
    assert answer.is_better
    assert answer.best.setup == {**DEFAULT, "layout": "nhwc"}


def test_what_breaks_a_limit_is_not_the_fastest(tmp_path: Path) -> None:
    def compiled_is_fast(setup: Mapping[str, Value]) -> float | str:
        return 200.0 if setup.get("compile") == "default" else 100.0

    wanted = replace(THRIFT, limits=(TuneLimit(name="power", most=150.0),))
    space = a_space({"threads": ["auto"], "engine": ["auto"]})
    answer = a_tuner(Thrifty(space=space, speed=compiled_is_fast), tmp_path, wanted).tune()
    assert answer.is_better
    assert answer.best.setup["layout"] == "nhwc"


def test_another_batch_is_no_measure_of_the_one_asked_for(tmp_path: Path) -> None:
    def larger_is_faster(setup: Mapping[str, Value]) -> float | str:
        return 150.0 if setup.get("batch") == 64 else 100.0

    space = a_space({"batch": [32, 64], "threads": ["auto"], "engine": ["auto"], "compile": ["auto"]})
    answer = a_tuner(Thrifty(space=space, speed=larger_is_faster), tmp_path, THRIFT).tune()
    assert answer.is_better
    assert answer.best.setup["layout"] == "nhwc"
    assert answer.best.setup.get("batch", 32) == 32


def test_a_default_that_is_too_slow_is_not_what_was_asked_for(tmp_path: Path) -> None:
    def compiled_is_fast(setup: Mapping[str, Value]) -> float | str:
        return 200.0 if setup.get("compile") == "default" else 100.0

    wanted = replace(THRIFT, objective=TuneObjective(name="memory", slowdown=1.05))
    answer = a_tuner(Scripted(space=a_space(), speed=compiled_is_fast), tmp_path, wanted).tune()
    assert answer.is_better
    assert answer.best.setup["compile"] == "default"
    assert isinstance(answer.ratio, Absent)
    assert "slower than the fastest" in answer.ratio.reason


def test_the_finals_decide_against_what_the_search_expects() -> None:
    default, plain, better = ("d",), ("plain",), ("better",)
    rounds = [{default: 100.0, plain: 120.0 + noise, better: 150.0 + noise} for noise in range(6)]
    judged = judge(
        [default, plain, better],
        rounds,
        changes=lambda point: {default: 0, plain: 1, better: 2}[point],
        expected=lambda _point: 0.3,
    )
    assert (judged.answer, judged.best) == ("better", better)
    assert judged.within == ()


def test_a_run_that_was_deleted_does_not_end_the_search(tmp_path: Path) -> None:
    """A search that was killed goes on, though somebody deleted all that it had measured."""
    scripted = Scripted(space=a_space(), speed=only_the_default_is_fast, die_after=20)
    with pytest.raises(KeyboardInterrupt):
        a_tuner(scripted, tmp_path, THROUGHPUT).tune()
    store = Store.open(tmp_path)
    log = store.tunes.get("a")
    assert log is not None
    for look in log.looks:
        assert look.run is not None
        store.delete(look.run)
    answer = a_tuner(Scripted(space=a_space(), speed=only_the_default_is_fast), tmp_path, THROUGHPUT, log=log).tune()
    assert answer.answer == "nothing better"


def test_killed_before_its_answer_is_stored_it_answers_again(tmp_path: Path) -> None:
    tuner = a_tuner(Scripted(space=a_space(), speed=only_the_default_is_fast), tmp_path, THROUGHPUT)
    first = tuner.tune()
    log = Store.open(tmp_path).tunes.get("a")
    assert log is not None
    assert isinstance(log.finished_at, Absent)
    scripted = Scripted(space=a_space(), speed=only_the_default_is_fast)
    again = a_tuner(scripted, tmp_path, THROUGHPUT, log=log)
    assert again.tune().best == first.best
    assert len(scripted.asked) <= 1
    again.finish()
    log = Store.open(tmp_path).tunes.get("a")
    assert log is not None
    assert isinstance(log.finished_at, str)


def test_the_time_of_a_check_is_in_the_log(tmp_path: Path) -> None:
    scripted = Scripted(space=a_space(), speed=lambda setup: 200.0 if setup.get("layout") == "nhwc" else 100.0)

    def takes_long(default: Any, candidates: Any, level: Any, **options: Any) -> Any:
        scripted.clock.now_s += 25.0
        scripted.die_after = len(scripted.asked)
        return all_the_same(default, candidates, level, deadline_s=options["deadline_s"])

    with pytest.raises(KeyboardInterrupt):
        a_tuner(scripted, tmp_path, THROUGHPUT, check=takes_long).tune()
    log = Store.open(tmp_path).tunes.get("a")
    assert log is not None
    assert log.spent_s == scripted.clock.now_s


def unexcused(default: Any, candidates: Any, level: Any, **options: Any) -> Any:
    """Gradients are too far off, and the time was over before it was known whether rounding does that."""
    found = all_the_same(default, candidates, level, deadline_s=options["deadline_s"])
    far = SameMeasure(value=0.18, tolerance=0.1, where="module/c.bias")
    return {
        name: replace(same, ok=False, gradient=far, alters=["order"], why_not="gradients differ by 18 %")
        for name, same in found.items()
    }


def test_a_check_that_saw_too_much_and_ran_out_of_time_is_no_proof(tmp_path: Path) -> None:
    def compiled_is_fast(setup: Mapping[str, Value]) -> float | str:
        return 200.0 if setup.get("compile") == "default" else 100.0

    answer = a_tuner(Scripted(space=a_space(), speed=compiled_is_fast), tmp_path, THROUGHPUT, check=unexcused).tune()
    assert answer.answer == "not separable"
    assert any("18 %" in doubt for doubt in answer.doubts)


def test_nothing_is_better_only_if_something_else_ran(tmp_path: Path) -> None:
    """The time that is left is used to look for it."""

    def only_the_default_runs(setup: Mapping[str, Value]) -> float | str:
        return 100.0 if setup == DEFAULT else "no memory"

    scripted = Scripted(space=a_space(), speed=only_the_default_runs, took_s=lambda _setup: 6.0)
    answer = a_tuner(scripted, tmp_path, replace(THROUGHPUT, budget_s=60.0)).tune()
    assert answer.answer == "not separable"
    assert any("no memory" in doubt for doubt in answer.doubts)
    assert len({str(setup) for setup in scripted.asked}) > 3


def test_finals_that_tell_anything_from_12_to_250_decide_nothing() -> None:
    default, fast = ("d",), ("fast",)
    speeds = ((330.0, 9900.0), (165.0, 9900.0), (99.0, 9900.0))
    rounds = [{default: slow, fast: quick} for slow, quick in speeds]
    judged = judge([default, fast], rounds, changes=lambda point: int(point == fast))
    assert judged.ratios[fast].low > 2
    assert judged.answer == "not separable"


class StartsAnew(Scripted):
    """A module of one's own that draws other weights in every launch."""

    def look(self, point: Any, **options: Any) -> Looked:
        found = super().look(point, **options)
        first = 2.0 + 0.1 * len(self.asked)
        return replace(found, draft=replace(found.draft, training=Training(losses=[(1, first), (4, first)])))


def test_a_module_that_starts_anew_in_every_launch_cannot_be_tuned(tmp_path: Path) -> None:
    scripted = StartsAnew(space=a_space(), speed=only_the_default_is_fast)
    scripted.model = load_model(f"{OWN_MODEL}:make")
    with pytest.raises(UsageError, match="seed its random numbers"):
        a_tuner(scripted, tmp_path, THROUGHPUT).tune()
    assert len(Store.open(tmp_path).list().rows) == len(scripted.asked)


@pytest.mark.parametrize("is_own", [True, False])
def test_only_networks_that_deepstone_writes_need_no_check_of_another_order(tmp_path: Path, is_own: bool) -> None:
    """A module of one's own may compute anything in another layout."""

    def out_of_time(default: Any, candidates: Any, level: Any, **options: Any) -> Any:
        found = all_the_same(default, candidates, level, deadline_s=options["deadline_s"])
        return {name: replace(same, ok=False, alters=["order"], why_not="no time") for name, same in found.items()}

    def nhwc_is_fast(setup: Mapping[str, Value]) -> float | str:
        return 200.0 if setup.get("layout") == "nhwc" else 100.0

    scripted = Scripted(space=a_space(), speed=nhwc_is_fast)
    if is_own:
        scripted.model = load_model(f"{OWN_MODEL}:make")
    answer = a_tuner(scripted, tmp_path, THROUGHPUT, check=out_of_time).tune()
    assert answer.is_better != is_own
