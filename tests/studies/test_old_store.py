"""A store that was written before identities left out axes at their default: a study goes on with it and repeats
nothing. The store holds a finished study on the scripted backend, as version 0.1 wrote it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from factory import sha
from msgspec.structs import replace
from study_kit import Remembering, by_state, machine, performed, study

from deepstone.environments.environment import Environment
from deepstone.store.rows import Filters
from deepstone.store.store import Store
from deepstone.studies.plan import Plan, make_plan

JOBS = ({"batch": [1, 2], "layout": "nhwc"}, {"measure": "layers", "method": "isolated"}, {"measure": "memory"})
ONCE = {"repetitions": 1, "budget": 0.02, "target": 50}


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """On the machine and with the versions that it was measured with."""
    monkeypatch.setattr(Environment, "sha", property(lambda self: sha("environment")))
    shutil.copytree(Path(__file__).with_name("store_of_0_1"), tmp_path / "old")
    return Store.open(tmp_path / "old", create=False)


def plan() -> Plan:
    return make_plan(study(*JOBS, {"measure": "conv"}, effort=ONCE), replace(machine(), sha=sha("machine")))


@pytest.mark.parametrize("rerun", ["never", "failed"])
def test_a_study_repeats_nothing(old: Store, rerun: str) -> None:
    progress = Remembering()
    state = performed(plan(), old, progress, rerun=rerun)
    assert progress.begun == []
    assert by_state(state) == {"done": 4, "pruned": 1}
    stored = {row.id for row in old.list().rows} | set(old.findings.ids())
    assert {task.runs[0] for task in state.tasks} == stored


def test_an_unfinished_study_goes_on_whatever_is_to_be_repeated(old: Store) -> None:
    """Under another policy a finished study is measured again, but not what an unfinished one has measured already."""
    file = old.layout.studies / "test.json"
    file.write_text(file.read_text().replace('"finished_at": "', '"finished_at": {"absent": "not finished"}, "was": "'))
    progress = Remembering()
    performed(plan(), old, progress, rerun="always")
    assert progress.begun == []


def test_either_name_of_a_job_finds_all_its_runs(old: Store) -> None:
    performed(plan(), old, rerun="always")
    for row in old.list(Filters(batch=1)).rows:
        assert len(old.list(Filters(job=row.job)).rows) == len(old.list(Filters(job=row.canonical_job)).rows) == 2
    assert {len(old.runs_of(row.canonical_job)) for row in old.list().rows} == {2}
