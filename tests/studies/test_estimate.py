"""Estimates say where they come from, and become those of this machine."""

from __future__ import annotations

import pytest
from fake_jobs import Script
from study_kit import performed, planned

from deepstone.store.store import Store
from deepstone.studies.estimate import PACED, ROUGH, STORE, THIS_STUDY, Estimator


def test_without_any_run_flops_decide() -> None:
    small, large = planned({"model": ["cifarnet", "resnet50"]}, effort={"repetitions": 1}).tasks
    estimator = Estimator(None, (), cores=2)
    assert estimator.of(small).basis == ROUGH
    assert estimator.of(small).seconds < estimator.of(large).seconds
    assert estimator.of(large).seconds > Estimator(None, (), cores=64).of(large).seconds


def test_every_kind_of_task_has_one() -> None:
    peaks = {"measure": "peaks", "framework": "fake", "device": "cpu"}
    plan = planned({}, {"measure": "layers"}, {"measure": "memory"}, {"measure": "conv"}, peaks)
    estimator = Estimator(None, (), cores=2)
    assert all(estimator.of(task).seconds > 0 for task in plan.tasks)
    twice, once = (planned({"measure": "layers", "method": method}).tasks[0] for method in ("both", "isolated"))
    assert estimator.of(twice).seconds > estimator.of(once).seconds


def test_another_round_takes_as_long_as_the_first() -> None:
    first, second = planned({"batch": 4}).tasks
    estimator = Estimator(None, (), cores=2)
    estimator.learn(first, 7.0)
    assert estimator.of(second).seconds == 7.0
    assert estimator.of(second).basis == THIS_STUDY


def test_what_is_rough_follows_the_pace() -> None:
    known, other = planned({"batch": [4, 8]}, effort={"repetitions": 1}).tasks
    estimator = Estimator(None, (), cores=2)
    before = estimator.of(other).seconds
    estimator.learn(known, 3 * estimator.of(known).seconds)
    assert estimator.of(other).basis == PACED
    assert estimator.of(other).seconds == pytest.approx(3 * before)


def test_a_run_in_the_store_tells_more_than_flops(store: Store, script: Script) -> None:
    script(step_s=0.01)
    performed(planned({"batch": 4}, effort={"repetitions": 1, "budget": 5.0, "target": 50}), store)
    longer = planned(
        {"batch": [4, 8]}, effort={"repetitions": 1, "budget": 30.0, "target": 0.01}, plan={"rerun": "always"}
    )
    estimator = Estimator(store, store.list().rows, cores=2)
    same, other = longer.tasks
    assert estimator.of(same).basis == STORE
    assert estimator.of(other).basis == ROUGH
    assert 0.1 < estimator.of(same).seconds < 10  # it reached its target in a fraction of the budget
