"""The study of every version: which ones it takes, what it says of the others, and that it runs to its figures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from factory import typed_records
from fake_jobs import Script
from kitchen import Kitchen
from msgspec.structs import replace
from study_kit import call, machine, performed, planned, study

from deepstone.analysis.charts import charts
from deepstone.environments.environment import Environment
from deepstone.environments.manifest import write_manifest
from deepstone.environments.places import Place
from deepstone.errors import MissingError, UsageError
from deepstone.results.quantity import Quantity
from deepstone.store.store import Store
from deepstone.studies.find import builtin_names, find_study, with_words
from deepstone.studies.plan import Plan, make_plan
from deepstone.studies.study import Study
from deepstone.studies.study_run import StudyRun
from deepstone.studies.values import Here, Listed, parse_value, resolve


@pytest.fixture
def kitchen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kitchen:
    """Environments of this test alone, and no framework beside Deepstone."""
    kitchen = Kitchen(folder=tmp_path)
    kitchen.recipes.mkdir()
    (tmp_path / "site").mkdir()
    monkeypatch.setattr(
        sys, "path", [str(tmp_path / "site"), *(path for path in sys.path if "site-packages" not in path)]
    )
    for name, value in kitchen.variables.items():
        monkeypatch.setenv(name, value)
    return kitchen


def note(kitchen: Kitchen, *names: str, python: Path = Path(sys.executable)) -> None:
    """Notes of environments, by name, whose interpreter is this one."""
    for name in names:
        framework, _, label = name.partition("@")
        version = label.partition("-")[0]
        place = Place(root=kitchen.root, name=name)
        place.folder.mkdir(parents=True)
        lock = {"python": "3.11.0", framework: label}
        environment = Environment(
            framework=framework, version=version, name=name, program=python, lock=lock, kind="adopted"
        )
        write_manifest(place, environment, recipe_sha="", size_bytes=0)


def eight_years(*words: str) -> Study:
    return with_words(find_study("eight-years"), words)


def frameworks(plan: Plan) -> list[str]:
    return list(dict.fromkeys(str(task.given["framework"]) for task in plan.tasks))


def test_it_comes_with_deepstone() -> None:
    assert "eight-years" in builtin_names()
    (sweep,) = eight_years().sweeps
    assert (sweep.models, sweep.effort.phases) == (("alexnet-owt",), False)
    assert (sweep.effort.repetitions or 0) >= 3


def test_every_version_that_is_there_in_both_phases(kitchen: Kitchen) -> None:
    note(kitchen, "torch@2.13.0", "torch@1.1.0", "tensorflow@1.12.0", "tensorflow@1.12.0-intel", "mxnet@1.9.1")
    note(kitchen, "jax@0.10.2", python=kitchen.folder / "gone")
    plan = make_plan(eight_years(), machine())
    assert frameworks(plan) == ["torch", "torch@1.1.0", "tensorflow", "tensorflow@1.12.0-intel", "mxnet"]
    assert {task.job.phase for task in plan.tasks} == {"train", "forward"}
    assert len(plan.tasks) == 5 * 2 * 4
    assert plan.base["framework"] == "torch"
    names = {task.job.environment.name for task in plan.tasks}
    assert names == {"torch@2.13.0", "torch@1.1.0", "tensorflow@1.12.0", "tensorflow@1.12.0-intel", "mxnet@1.9.1"}


def test_what_does_not_train_is_told_and_runs_forward(kitchen: Kitchen) -> None:
    note(kitchen, "torch@2.13.0", "onnxruntime@1.0.0")
    state = StudyRun(make_plan(eight_years(), machine()), None, call()).state
    told = {(str(each.task.given["framework"]), each.task.job.phase): (each.state, each.why) for each in state.tasks}
    why = "unsupported: ONNX Runtime runs networks and does not train them; use phase=forward"
    assert told.pop(("onnxruntime", "train")) == ("pruned", why)
    assert set(told.values()) == {("waiting", "")}
    assert len(told) == 3


def test_what_is_not_there_is_in_the_state_as_it_is_added(kitchen: Kitchen) -> None:
    note(kitchen, "torch@2.13.0", "mxnet@1.9.1")
    plan = make_plan(eight_years(), machine())
    assert {"theano", "chainer", "tensorflow@1.2.1", "torch@1.1.0"} <= set(plan.addable)
    assert not {"torch", "mxnet"} & set(plan.addable)
    assert StudyRun(plan, None, call()).state.kept().to_json()["addable"] == list(plan.addable)
    assert planned({}).addable == ()  # a study that names its frameworks wants no others


def test_without_any_framework_the_remedy_is_told(kitchen: Kitchen) -> None:
    del kitchen
    with pytest.raises(MissingError, match="no framework is installed"):
        make_plan(eight_years(), machine())


def test_the_words_for_frameworks_differ() -> None:
    here = Here(cores=2, frameworks=("torch", "jax"), versions=("torch", "torch@1.1.0", "jax", "mxnet"))

    def meant(*words: str) -> tuple[object, ...]:
        return resolve(Listed(values=tuple(parse_value("framework", word) for word in words)), here)

    assert meant("installed") == ("torch", "jax")
    assert meant("every-version") == ("torch", "torch@1.1.0", "jax", "mxnet")
    assert meant("installed", "every-version") == ("torch", "jax", "torch@1.1.0", "mxnet")
    with pytest.raises(UsageError):
        parse_value("layout", "every-version")


def test_it_runs_goes_on_and_fills_its_figures(store: Store, script: Script) -> None:
    script(step_s=0.001)
    short = eight_years("framework=fake", "model=cifarnet")
    short = replace(
        short, sweeps=tuple(replace(each, effort=replace(each.effort, budget_s=0.05)) for each in short.sweeps)
    )
    plan = make_plan(short, machine())
    state = performed(plan, store, time_s=60.0)
    assert state.count("done") == len(plan.tasks) == 8
    records: list[Any] = [store.get(run).to_json() for status in state.tasks for run in status.runs]
    assert all("absent" in record["phases"] for record in records)
    assert all("absent" in record["environment"]["year"] for record in records)
    for record in records:
        record["environment"]["year"] = 2026
    found = {each.name: each for each in charts(state.figures, typed_records(records), state.base)}
    assert [series.panel for series in found["years"].series] == ["training", "forward"]
    speed = found["years"].series[0].points[0].y
    assert isinstance(speed, Quantity)
    assert speed.n == 4
    again = performed(plan, store)
    assert [status.runs for status in again.tasks] == [status.runs for status in state.tasks]


@pytest.mark.parametrize("wrong", ["no", 1, "true"])
def test_phases_are_true_or_false(wrong: object) -> None:
    with pytest.raises(UsageError, match="phases: must be true or false"):
        study(effort={"phases": wrong})
