"""From a study to its tasks, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from study_kit import planned, study

from deepstone.errors import MissingError, UsageError
from deepstone.studies.find import with_words
from deepstone.studies.plan import MOST_TASKS, make_plan


def titles(*jobs: dict[str, object]) -> list[str]:
    plan = planned(*jobs, effort={"repetitions": 1})
    return [task.title.removeprefix("cifarnet framework=fake ") for task in plan.tasks]


def test_all_combinations() -> None:
    assert titles({"batch": [1, 2], "layout": ["nchw", "nhwc"]}) == [
        "batch=1 layout=nchw",
        "batch=1 layout=nhwc",
        "batch=2 layout=nchw",
        "batch=2 layout=nhwc",
    ]


def test_one_factor_at_a_time() -> None:
    sweep = {"vary": "one", "batch": [1, 2, 4], "layout": ["nchw", "nhwc"], "seed": 3}
    assert titles(sweep) == [
        "batch=1 layout=nchw seed=3",
        "batch=2 layout=nchw seed=3",
        "batch=4 layout=nchw seed=3",
        "batch=1 layout=nhwc seed=3",
    ]
    plan = planned(sweep)
    assert plan.base == {"framework": "fake", "batch": 1, "layout": "nchw", "seed": 3}
    assert [task.changed for task in plan.tasks if task.round == 1] == [
        {},
        {"batch": 2},
        {"batch": 4},
        {"layout": "nhwc"},
    ]


def test_what_is_excluded_is_counted() -> None:
    sweep = {
        "model": ["cifarnet", "alexnet"],
        "batch": [1, 2],
        "exclude": [{"model": "alexnet", "batch": 2}, {"framework": "fake", "batch": 1, "model": "cifarnet"}],
    }
    plan = planned(sweep, effort={"repetitions": 1})
    assert [(task.model, task.job.batch) for task in plan.tasks] == [("cifarnet", 2), ("alexnet", 1)]
    assert plan.excluded == 2


def test_rounds_differ_in_the_repetition_alone() -> None:
    first, second = planned({"batch": 1}).tasks
    assert (first.round, second.round) == (1, 2)
    assert {**first.job.identity.to_json(), "repetition": 2} == second.job.identity.to_json()
    assert first.id == first.job.id != second.id
    assert first.setup == second.setup


def test_what_two_sweeps_share_is_measured_once() -> None:
    plan = planned({"batch": [1, 2], "priority": 5}, {"batch": [2, 4]})
    assert sorted(task.job.batch for task in plan.tasks if task.round == 1) == [1, 2, 4]
    assert {task.tier for task in plan.tasks if task.job.batch == 2} == {0}


def test_commands_give_each_task_again() -> None:
    plan = planned(
        {"batch": 8}, {"measure": "layers", "method": "in-place"}, {"measure": "memory"}, {"measure": "conv"}
    )
    assert [" ".join(task.command) for task in plan.tasks if task.round == 1] == [
        "deepstone run cifarnet framework=fake batch=8 --target 50 --budget 0.05",
        "deepstone layers cifarnet framework=fake --budget 0.05 --timeout 900 --method in-place",
        "deepstone memory cifarnet framework=fake",
        "deepstone conv cifarnet framework=fake --timeout 900",
    ]
    assert [task.kind for task in plan.tasks] == ["run", "run", "layers", "memory", "conv"]
    assert len({task.id for task in plan.tasks}) == 5


def test_ceilings_come_first_and_need_no_model() -> None:
    plan = planned({}, {"measure": "peaks", "framework": "fake", "device": "cpu"})
    first = min(plan.tasks, key=lambda task: task.priority)
    assert first.title == "peaks of cpu with fake@1"
    assert first.model == ""


def test_what_breaks_a_rule_is_known_at_once() -> None:
    plan = planned({"device": "cpu", "engine": ["native", "cudnn"]})
    assert {task.hopeless for task in plan.tasks if task.job.request["engine"] == "cudnn"} == {
        "unsupported: engine cudnn runs on a GPU only"
    }
    assert not any(task.hopeless for task in plan.tasks if task.job.request["engine"] == "native")


def test_what_is_missing_spares_the_others() -> None:
    plan = planned({"framework": ["fake", "jax@0.0.1"]})
    missing = [task for task in plan.tasks if task.missing]
    assert len(missing) == 2
    assert "jax@0.0.1 is not installed" in missing[0].hopeless


class TestRefused:
    def test_a_plan_without_end_is_counted_and_not_made(self) -> None:
        """If it were made, this would take hours."""
        sweep = {"batch": {"from": 1, "to": 2**20, "step": 1}, "threads": {"from": 1, "to": 4096, "step": 1}}
        with pytest.raises(UsageError, match=rf"8,589,934,592 tasks, and more than {MOST_TASKS:,}"):
            planned(sweep)

    def test_a_plan_of_which_nothing_is_left(self) -> None:
        with pytest.raises(UsageError, match="all 2 combinations are excluded"):
            planned({"batch": [1, 2], "exclude": [{"framework": "fake"}]})

    def test_a_plan_that_cannot_run(self) -> None:
        with pytest.raises(UsageError, match="none of the 2 tasks can run; the first: unsupported: engine cudnn"):
            planned({"device": "cpu", "engine": "cudnn"})

    def test_a_plan_of_which_everything_is_missing(self) -> None:
        with pytest.raises(MissingError, match=r"jax@0\.0\.1 is not installed"):
            planned({"framework": "jax@0.0.1"})

    def test_a_model_that_is_wrong_is_told_with_the_place(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"test: jobs\[0\]: no file .*gone.json"):
            planned({"model": str(tmp_path / "gone.json")})


class TestWords:
    def test_they_take_the_place_of_the_studys_values(self) -> None:
        changed = with_words(study({"batch": [1, 2], "layout": ["nchw", "nhwc"]}), ["batch=4,8", "phase=forward"])
        tasks = make_plan(changed).tasks
        assert {task.job.batch for task in tasks} == {4, 8}
        assert {task.job.phase for task in tasks} == {"forward"}
        assert len(tasks) == 8

    def test_the_model_too(self) -> None:
        tasks = make_plan(with_words(study(), ["model=alexnet"])).tasks
        assert {task.model for task in tasks} == {"alexnet"}

    def test_a_changed_study_has_a_name_of_its_own(self) -> None:
        names = {with_words(study(), words).name for words in ([], ["batch=4"], ["batch=8"])}
        assert len(names) == 3
        assert with_words(study(), ["batch=4", "seed=1"]).name == with_words(study(), ["seed=1", "batch=4"]).name

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (["bach=4"], "did you mean batch"),
            (["batch"], "is not AXIS=VALUE"),
            (["batch=4", "batch=8"], "given twice"),
            (["batch=4,4"], "listed twice"),
            (["layout=nwhc"], "did you mean nhwc"),
            (["model=alexnt"], "did you mean alexnet"),
        ],
    )
    def test_wrong_ones(self, words: list[str], told: str) -> None:
        with pytest.raises(UsageError, match=told):
            with_words(study(), words)
