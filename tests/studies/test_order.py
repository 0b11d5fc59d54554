"""Rounds, the order within them, and what a limited time is spent on."""

from __future__ import annotations

from study_kit import planned

from deepstone.studies.state import Task
from deepstone.studies.study import Rules
from deepstone.studies.study_run import in_order, most_informative

BATCHES = list(range(1, 13))


def tasks(**top: object) -> tuple[Task, ...]:
    return planned({"batch": BATCHES}, **top).tasks


def batches(ordered: list[Task]) -> list[int]:
    return [task.job.batch for task in ordered]


def test_rounds_follow_each_other_each_in_an_order_of_its_own() -> None:
    ordered = in_order(tasks(), Rules())
    assert [task.round for task in ordered] == [1] * 12 + [2] * 12
    first, second = batches(ordered[:12]), batches(ordered[12:])
    assert sorted(first) == sorted(second) == BATCHES
    assert first != BATCHES
    assert first != second


def test_the_same_seed_gives_the_same_order() -> None:
    forth, back = (in_order(given, Rules(seed=3)) for given in (tasks(), tuple(reversed(tasks()))))
    assert [task.id for task in forth] == [task.id for task in back]
    assert batches(in_order(tasks(), Rules(seed=3))) != batches(in_order(tasks(), Rules(seed=4)))


def test_as_written() -> None:
    assert batches(in_order(tasks(), Rules(order="written"))) == BATCHES * 2


def test_a_tier_has_all_its_rounds_before_the_next() -> None:
    plan = planned({"batch": [1, 2], "priority": 1}, {"batch": [3, 4]}, {"measure": "peaks", "framework": "fake"})
    ordered = in_order(plan.tasks, Rules())
    assert ordered[0].kind == "peaks"
    assert [task.round for task in ordered[1:]] == [1, 1, 2, 2, 1, 1, 2, 2]
    assert {task.job.batch for task in ordered[1:5]} == {3, 4}


def test_time_goes_to_the_base_and_the_first_rounds() -> None:
    plan = planned({"vary": "one", "batch": [1, 2, 4], "layout": ["nchw", "nhwc"]})
    chosen = most_informative(plan.tasks, {task.id: 10.0 for task in plan.tasks}, 50.0)
    taken = [task for task in plan.tasks if task.id in chosen]
    assert len(taken) == 5
    assert [task.round for task in taken if task.changed] == [1, 1, 1]
    assert [task.round for task in taken if not task.changed] == [1, 2]


def test_fewer_axes_changed_tell_more() -> None:
    plan = planned({"batch": [1, 2], "layout": ["nchw", "nhwc"]}, effort={"repetitions": 1})
    chosen = most_informative(plan.tasks, {task.id: 10.0 for task in plan.tasks}, 30.0)
    assert [len(task.changed) for task in plan.tasks if task.id in chosen] == [0, 1, 1]


def test_what_is_small_may_fit_where_something_large_does_not() -> None:
    plan = planned({"batch": [1, 2, 4]}, effort={"repetitions": 1})
    need_s = {1: 10.0, 2: 100.0, 4: 10.0}
    chosen = most_informative(plan.tasks, {task.id: need_s[task.job.batch] for task in plan.tasks}, 25.0)
    assert [task.job.batch for task in plan.tasks if task.id in chosen] == [1, 4]
