"""Two setups may be compared only where nothing else differs, and a winner must be one."""

from __future__ import annotations

import math

import pytest
from depth import examples
from factory import check_record
from hypothesis import given
from hypothesis import strategies as st
from measured_runs import rounds, run
from numpy.random import default_rng
from of_json import cases

from deepstone.absent import Absent
from deepstone.analysis.contrast import Contrast, contrast_cases
from deepstone.measure.ratios import A_FASTER, B_FASTER, NO_DIFFERENCE
from deepstone.results.searched import Searched

speeds = st.floats(1e-3, 1e6)


def contrast(a, b, differ_in=None) -> Contrast | Absent:
    """All runs of one setup against all runs of another."""
    (one,), (other,) = cases(a), cases(b)
    return contrast_cases(one, other, differ_in)


def contrasted(*arguments) -> Contrast:
    found = contrast(*arguments)
    assert isinstance(found, Contrast), found
    return found


def refused(*arguments) -> str:
    found = contrast(*arguments)
    assert isinstance(found, Absent), found
    return found.reason


def test_the_runs_of_these_tests_are_records():
    for record in (run(), run(outcome="oom"), run(gpu=True, framework="jax", round=3)):
        check_record(record)


class TestInRounds:
    def test_pairs_by_round_so_that_a_slow_round_cancels(self):
        a = rounds(210, 105, 420.5, layout="nhwc")
        b = rounds(100, 50, 200)
        found = contrasted(a, b)
        assert found.speed_ratio.median == pytest.approx(2.1, rel=0.01)
        assert (found.verdict, found.rounds, found.axes) == (A_FASTER, 3, ("layout",))
        assert set(found.runs) == {record["id"] for record in a + b}
        assert "3 rounds" in found.how

    def test_only_common_rounds_count(self):
        found = contrasted(rounds(200, 200, 200, layout="nhwc")[1:], rounds(100, 100, 100))
        assert found.rounds == 2
        assert found.speed_ratio.n == 2

    def test_two_rounds_that_vary_prove_nothing(self):
        assert contrasted(rounds(130, 120, layout="nhwc"), rounds(100, 100)).verdict == NO_DIFFERENCE

    def test_within_two_percent_nobody_wins(self):
        found = contrasted(rounds(101.9, 101.9, 101.9, layout="nhwc"), rounds(100, 100, 100))
        assert found.speed_ratio.low > 1
        assert found.verdict == NO_DIFFERENCE

    def test_the_other_way_round(self):
        assert contrasted(rounds(100, 101, 99), rounds(200, 201, 203, layout="nhwc")).verdict == B_FASTER

    def test_a_round_measured_again_counts_once_by_its_newest_attempt(self):
        b = [*rounds(100, 100, 100), run(50, round=2, attempt=2)]
        assert contrasted(rounds(200, 100, 200, layout="nhwc"), b).speed_ratio.median == pytest.approx(2)

    def test_a_failed_round_is_left_out(self):
        a = [*rounds(200, 200, layout="nhwc"), run(round=3, outcome="crashed", layout="nhwc")]
        assert contrasted(a, rounds(100, 100, 100)).rounds == 2

    def test_rounds_of_another_day_are_no_pairs(self):
        """All of a before all of b: a machine that became slower in between would look like a winner."""
        a = [run(speed, round=number, layout="nhwc", minute=number) for number, speed in enumerate((110, 111, 112), 1)]
        b = [run(speed, round=number, minute=50 + number) for number, speed in enumerate((100, 101, 102), 1)]
        assert contrasted(a, b).apart

    def test_doubts_are_told(self):
        found = contrasted(rounds(2, 2, layout="nhwc", doubts=["other_load"]), rounds(1, 1, doubts=["trend"]))
        assert found.doubts == ("other_load", "trend")

    @given(a=st.lists(speeds, min_size=2, max_size=4), b=st.lists(speeds, min_size=2, max_size=4))
    @examples(60)
    def test_turning_the_sides_inverts_the_ratio(self, a: list[float], b: list[float]):
        one, other = rounds(*a, layout="nhwc"), rounds(*b)
        there, back = contrasted(one, other).speed_ratio, contrasted(other, one).speed_ratio
        assert there.median * back.median == pytest.approx(1)
        assert there.low * back.high == pytest.approx(1)
        assert there.low <= there.median <= there.high
        assert math.isfinite(there.high)


class TestApart:
    def test_bounds_are_the_ends_of_both_intervals(self):
        found = contrasted([run(300, share=0.1, layout="nhwc")], [run(100, share=0.1)])
        assert (found.speed_ratio.low, found.speed_ratio.high) == (pytest.approx(270 / 110), pytest.approx(330 / 90))
        assert found.apart
        assert found.verdict == A_FASTER
        assert "apart" in found.how

    def test_one_process_each_must_differ_by_more_than_processes_do(self):
        assert contrasted([run(108, layout="nhwc")], [run(100)]).verdict == NO_DIFFERENCE
        assert contrasted([run(130, layout="nhwc")], [run(100)]).verdict == A_FASTER

    def test_a_few_samples_of_one_process_are_compared_with_nothing(self):
        assert "3 samples" in refused([run(300, samples=3, layout="nhwc")], [run(100)])
        assert contrasted(rounds(300, 300, samples=3, layout="nhwc"), rounds(100, 100)).verdict == A_FASTER

    def test_on_a_disturbed_machine_only_a_large_difference_counts(self):
        assert contrasted([run(140, layout="nhwc", doubts=["other_load"])], [run(100)]).verdict == NO_DIFFERENCE
        assert contrasted([run(300, layout="nhwc", doubts=["other_load"])], [run(100)]).verdict == A_FASTER

    def test_a_gpu_varies_less(self):
        found = contrasted([run(108, layout="nhwc", gpu=True)], [run(100, gpu=True)])
        assert found.verdict == A_FASTER

    def test_across_launches_the_interval_itself_tells(self):
        a = [run(108, layout="nhwc", interval="across launches")]
        assert contrasted(a, [run(100, interval="across launches")]).verdict == A_FASTER

    def test_another_machine_has_no_common_rounds(self):
        found = contrasted(rounds(300, 301, 299, machine="there"), rounds(100, 101, 99), {"machine"})
        assert found.apart
        assert found.axes == ("machine",)
        assert found.verdict == A_FASTER


class TestWhatDiffers:
    def test_auto_is_what_came_of_it(self):
        assert "same setup" not in refused([run()], [run(layout="nhwc")], {"batch"})
        found = contrasted([run(layout="nchw", batch=8)], [run(batch=16)], {"batch"})
        assert found.axes == ("batch",), "layout=auto was nchw"

    def test_what_the_framework_then_chose_follows(self):
        jax = run(300, framework="jax", effective={"layout": "nhwc", "engine": "xla"})
        found = contrasted([jax], [run(100)], {"framework"})
        assert found.axes == ("framework",)
        assert set(found.follow) == {"layout", "engine"}

    def test_auto_that_came_out_differently_for_no_reason_is_a_difference(self):
        reason = refused([run(effective={"threads": 1}, round=2)], [run(layout="nchw")], {"layout"})
        assert reason == "they differ in threads (1, 2), and only layout is compared"

    @pytest.mark.parametrize(
        ("other", "reason"),
        [
            ({"machine": "there"}, "the machine"),
            ({"environment": "newer"}, "the versions installed"),
            ({"phase": "forward"}, "phase (forward, train)"),
        ],
    )
    def test_some_differences_must_be_asked_for_by_name(self, other: dict[str, str], reason: str):
        assert refused([run(**other)], [run()]) == f"they differ in {reason}"
        assert contrasted([run(500, **other)], [run()], set(other)).verdict == A_FASTER

    def test_nothing_but_what_is_compared_may_differ(self):
        reason = refused([run(layout="nhwc", batch=8)], [run()], {"layout"})
        assert reason == "they differ in batch (8, 32), and only layout is compared"
        assert contrasted([run(layout="nhwc", batch=8)], [run()]).axes == ("batch", "layout")

    def test_two_machines_may_have_two_builds_of_one_version(self):
        there = run(machine="there", environment="cuda", version="2.13.0+cu130")
        assert contrasted([there], [run(version="2.13.0+cpu")], {"machine"}).axes == ("machine",)
        older = run(machine="there", environment="cuda", version="2.11.0")
        assert "versions" in refused([older], [run()], {"machine"})

    def test_what_cannot_be_compared_at_all(self):
        assert refused([run()], [run(round=2)]) == "both sides are the same setup"
        assert "not the same network" in refused([run(model="vgg11")], [run()])
        assert refused([run(outcome="oom", batch=512)], [run()]).startswith("not measured: oom: ")


class TestSimulated:
    """Launches of one setup differ by 3 to 8 %, and whole rounds by more."""

    REPEATS = 200

    @staticmethod
    def wins(true_ratio: float, launch_spread: float, repeats: int, round_spread: float = 0.1) -> float:
        random = default_rng(round(1000 * launch_spread))
        won = 0
        for _ in range(repeats):
            whole = random.normal(0, round_spread, 3)
            a, b = (100 * ratio * random.lognormal(whole, launch_spread) for ratio in (true_ratio, 1.0))
            won += contrasted(rounds(*a, layout="nhwc"), rounds(*b)).verdict != NO_DIFFERENCE
        return won / repeats

    @pytest.mark.parametrize(
        ("launch_spread", "repeats"),
        [(0.05, 200), *(pytest.param(spread, 500, marks=pytest.mark.deep) for spread in (0.03, 0.05, 0.08))],
    )
    def test_the_same_is_called_different_as_seldom_as_said(self, launch_spread: float, repeats: int):
        # Within 5 %, and 2 standard errors of this many repeats.
        assert self.wins(1.0, launch_spread, repeats) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / repeats)

    @pytest.mark.parametrize(("true_ratio", "launch_spread"), [(1.3, 0.03), (2.0, 0.05), (0.4, 0.08)])
    def test_a_real_difference_is_found(self, true_ratio: float, launch_spread: float):
        assert self.wins(true_ratio, launch_spread, 100) > 0.9

    def test_single_processes_seldom_fake_a_winner(self):
        """Their own intervals know nothing of how launches differ; the larger margin stands in for that."""
        random = default_rng(5)
        verdicts = [
            contrasted([run(a, layout="nhwc")], [run(b)]).verdict
            for a, b in 100 * random.lognormal(0, 0.04, (self.REPEATS, 2))
        ]
        assert sum(verdict != NO_DIFFERENCE for verdict in verdicts) / self.REPEATS < 0.1


TRAINED = {"losses": [[1, 3.0], [3, 2.6], [50, 0.9]], "early_change": 0.01, "arrays": 4, "moved": 4}


class TestWhatTheTimedStepsDid:
    def runs(self, training: dict[str, object], **axes):
        return [{**record, "training": training} for record in rounds(200, 200, 200, **axes)]

    def test_a_run_that_is_not_shown_to_train_is_no_winner(self):
        a, b = rounds(200, 200, 200, layout="nhwc"), rounds(100, 100, 100)
        a[1]["doubts"].append({"code": "not_training", "detail": "no parameter moved"})
        assert a[1]["id"] in refused(a, b)

    def test_the_same_training_is_compared(self):
        assert contrasted(self.runs(TRAINED, layout="nhwc"), self.runs(TRAINED)).rounds == 3

    def test_another_training_is_not(self):
        other = {**TRAINED, "early_change": 0.001}
        assert "early updates" in refused(self.runs(other, layout="nhwc"), self.runs(TRAINED))

    def test_arrays_that_only_one_side_changes_are_another_training(self):
        """A branch without a gradient: losses and sizes of updates of a few steps do not show it."""
        half = {**TRAINED, "arrays": 8, "moved": 4}
        whole = {**TRAINED, "arrays": 8, "moved": 8}
        assert "of 8 arrays" in refused(self.runs(half, layout="nhwc"), self.runs(whole))
        rounded_away = {**whole, "moved": 7}
        assert contrasted(self.runs(rounded_away, layout="nhwc"), self.runs(whole)).rounds == 3

    def test_a_module_is_compared_only_if_it_starts_alike(self):
        """One of one's own may be random, and then its losses say nothing."""
        opaque = {"flops": {"absent": "a module"}, "bytes": {"absent": "a module"}}
        half = {**TRAINED, "arrays": 8, "moved": 4}
        random = {**half, "losses": [[1, 2.0], [3, 2.6], [50, 0.9]]}

        def runs(training, **axes):
            return [{**record, "cost": opaque} for record in self.runs({"arrays": 8, "moved": 8, **training}, **axes)]

        whole = runs({**TRAINED, "arrays": 8, "moved": 8})
        assert "of 8 arrays" in refused(runs(half, layout="nhwc"), whole)
        assert contrasted(runs(random, layout="nhwc"), whole).rounds == 3

    def test_what_a_search_refused_is_compared_with_nothing(self):
        a, b = self.runs(TRAINED, layout="nhwc"), self.runs(TRAINED)
        (one,), (other,) = cases(a, Searched(refused={a[1]["id"]: "gradients differ"})), cases(b)
        for sides in ((one, other), (other, one)):
            found = contrast_cases(*sides)
            assert isinstance(found, Absent)
            assert "refused" in found.reason
            assert "gradients differ" in found.reason
