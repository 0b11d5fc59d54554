"""All rounds of a setup become one speed, without choosing among them."""

from __future__ import annotations

import pytest
from measured_runs import rounds, run
from of_json import cases

from deepstone.absent import Absent
from deepstone.results.quantity import Quantity


def speed_of(case) -> Quantity:
    assert isinstance(case.samples_per_s, Quantity)
    return case.samples_per_s


def test_rounds_of_one_setup_are_one_case():
    found = cases([*rounds(100, 110, 90), *rounds(50, 51, layout="nhwc")])
    assert [len(case.good) for case in found] == [3, 2]
    assert [speed_of(case).median for case in found] == [100, pytest.approx(50.5)]
    assert speed_of(found[0]).n == 3
    assert found[0].interval == "across rounds in fresh processes"


def test_the_interval_across_rounds_is_wider_than_each_run_claims():
    (case,) = cases(rounds(100, 104, 96, share=0.001))
    assert speed_of(case).low < 96
    assert speed_of(case).high > 104


def test_one_run_keeps_its_own_interval():
    (case,) = cases([run(100, share=0.02)])
    assert (speed_of(case).low, speed_of(case).high) == (98, 102)
    assert case.interval == "within one process"
    (launched,) = cases([run(interval="across launches")])
    assert launched.interval == "across launches"


def test_the_newest_attempt_of_a_round_counts_however_it_came_out():
    (case,) = cases([run(100, attempt=1), run(50, attempt=2), run(70, attempt=3)])
    assert speed_of(case).median == 70
    assert len(case.runs) == 1


def test_the_tenth_attempt_is_newer_than_the_ninth():
    (case,) = cases([run(10, attempt=10), run(9, attempt=9)])
    assert speed_of(case).median == 10


def test_a_failure_does_not_hide_a_round_that_went_well():
    (case,) = cases([run(100, attempt=1), run(outcome="crashed", attempt=2), run(outcome="oom", round=2)])
    assert len(case.good) == 1
    assert [record.outcome for record in case.failed] == ["oom"]


def test_without_a_good_run_it_says_why():
    (case,) = cases([run(outcome="oom", batch=4096)])
    assert isinstance(case.samples_per_s, Absent)
    assert case.why_not.startswith("oom: ")
    assert case.runs == (case.failed[0].id,)


def test_machines_and_environments_are_told_apart():
    assert len(cases([run(), run(machine="there"), run(environment="newer"), run(model="vgg11")])) == 4


def test_a_speed_of_zero_is_no_measurement():
    (case,) = cases([run(100, share=1.0)])
    assert not case.good
