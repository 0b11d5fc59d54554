"""Whole studies on the scripted backend: order, states, resuming, policies, pruning, time."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fake_jobs import Script
from study_kit import Remembering, by_state, call, performed, planned

from deepstone.absent import Absent
from deepstone.store.store import Store
from deepstone.studies.run import run_study
from deepstone.studies.state import TaskStatus
from deepstone.studies.study_run import StudyRun

ONCE = {"repetitions": 1, "budget": 0.05, "target": 50}
FAULTY = {"batch=2": {"fault": {"at": "step", "step": 0, "kind": "error"}}}


def test_each_round_is_stored_under_its_own_name(store: Store) -> None:
    progress = Remembering()
    state = performed(planned({"batch": [1, 2]}), store, progress)
    assert by_state(state) == {"done": 4}
    rows = {row.id: row for row in store.list().rows}
    assert [status.runs[0] for status in state.tasks] == [status.runs[0] for status in progress.begun]
    assert {status.task.id for status in state.tasks} == {row.job for row in rows.values()}
    rounds = [store.get(status.runs[0]).identity.repetition for status in progress.begun]
    assert rounds == [1, 1, 2, 2]


def test_the_state_tells_what_shared_shapes_promise(store: Store) -> None:
    performed(planned({"vary": "one", "batch": [1, 2]}, effort=ONCE, figures=[{"form": "bars"}]), store)
    kept = store.studies.get("test")
    assert kept is not None
    state: Any = kept.to_json()
    assert (state["schema"], state["kind"], state["name"]) == (1, "study", "test")
    assert state["resume"] == "deepstone study test.toml"
    assert isinstance(state["finished_at"], str)
    assert state["base"] == {"framework": "fake", "batch": 1}
    assert state["figures"] == [{"form": "bars"}]
    for task in state["tasks"]:
        assert {"id", "kind", "title", "round", "state", "why", "runs", "priority", "estimate_s"} <= set(task)
        assert (task["kind"], task["state"], len(task["runs"])) == ("run", "done", 1)
        assert task["took_s"] > 0
    assert sorted(task["priority"] for task in state["tasks"]) == [0, 1]
    assert store.studies.list() == [kept]


def test_a_second_call_measures_nothing(store: Store) -> None:
    plan = planned({"batch": [1, 2]}, effort=ONCE)
    first = performed(plan, store)
    progress = Remembering()
    second = performed(plan, store, progress)
    assert progress.begun == []
    assert [status.runs for status in second.tasks] == [status.runs for status in first.tasks]
    assert len(store.list().rows) == 2


class Stop(BaseException):
    """As a signal would."""


class StoppingAt(Remembering):
    def begin(self, status: TaskStatus) -> None:
        if len(self.begun) == 2:
            raise Stop
        super().begin(status)


def test_what_was_cut_short_goes_on_in_the_same_order(store: Store) -> None:
    plan = planned({"batch": [1, 2, 4]}, effort=ONCE)
    cut = StoppingAt()
    with pytest.raises(Stop):
        performed(plan, store, cut)
    state = store.studies.get("test")
    assert state is not None
    assert [task.state for task in state.tasks] == ["done", "done", "waiting"]
    assert isinstance(state.finished_at, Absent)
    assert "deepstone study test.toml" in state.finished_at.reason
    rest = Remembering()
    done = performed(plan, store, rest)
    assert by_state(done) == {"done": 3}
    whole = [status.task.id for status in done.tasks]
    assert [status.task.id for status in (*cut.begun, *rest.begun)] == whole
    assert done.started_at == state.started_at
    assert [status.took_s is None for status in done.tasks] == [False] * 3


class TestRerun:
    def test_failed_alone(self, store: Store, script: Script) -> None:
        script(by=FAULTY)
        plan = planned({"batch": [1, 2]}, effort=ONCE)
        assert by_state(performed(plan, store)) == {"done": 1, "failed": 1}
        assert by_state(performed(plan, store)) == {"done": 1, "failed": 1}
        assert len(store.list().rows) == 2
        script()
        state = performed(plan, store, rerun="failed")
        assert by_state(state) == {"done": 2}
        assert len(store.list().rows) == 3
        retried = next(status for status in state.tasks if status.task.job.batch == 2)
        assert retried.runs[0].endswith("-2")
        assert by_state(performed(plan, store)) == {"done": 2}  # the one that ended well counts

    def test_always_and_cut_short(self, store: Store) -> None:
        plan = planned({"batch": [1, 2, 4]}, effort=ONCE)
        performed(plan, store)
        with pytest.raises(Stop):
            performed(plan, store, StoppingAt(), rerun="always")
        assert len(store.list().rows) == 5
        performed(plan, store, rerun="always")
        assert len(store.list().rows) == 6  # it went on, and did not begin again
        performed(plan, store, rerun="always")
        assert len(store.list().rows) == 9


class TestOutcomes:
    def test_what_fails_spares_the_others(self, store: Store, script: Script) -> None:
        script(by=FAULTY)
        state = performed(planned({"batch": [1, 2, 4]}, effort=ONCE), store)
        assert by_state(state) == {"done": 2, "failed": 1}
        failed = next(status for status in state.tasks if status.state == "failed")
        assert failed.why == "crashed: RuntimeError: scripted failure"
        assert store.get(failed.runs[0]).outcome == "crashed"

    def test_larger_batches_are_pruned(self, store: Store, script: Script) -> None:
        script(memory={"base": 0, "per_sample": 1, "limit": 5})
        progress = Remembering()
        plan = planned({"batch": [2, 4, 8, 16]}, plan={"order": "written"})
        state = performed(plan, store, progress)
        assert by_state(state) == {"done": 4, "failed": 1, "pruned": 3}
        assert [status.task.job.batch for status in progress.begun] == [2, 4, 8, 2, 4]
        assert {status.why for status in state.tasks if status.state == "pruned"} == {
            "oom: the same setup ran out of memory",
            "oom: batch 8 of the same setup ran out of memory",
        }
        # And so it is when the study is run again: the record in the store tells it.
        again = Remembering()
        assert by_state(performed(plan, store, again)) == {"done": 4, "failed": 1, "pruned": 3}
        assert again.begun == []

    def test_unsupported_is_no_failure(self, store: Store, script: Script) -> None:
        script(by={"batch=2": {"fault": {"at": "build", "kind": "unsupported"}}})
        state = performed(planned({"batch": [1, 2]}), store)
        assert by_state(state) == {"done": 2, "pruned": 2}
        assert len(store.list().rows) == 3  # tried once

    def test_missing_is_told_and_tried_again(self, store: Store, script: Script) -> None:
        script(fault={"at": "build", "kind": "missing"})
        plan = planned({"batch": 1}, effort=ONCE)
        state = performed(plan, store)
        assert state.tasks[0].state == "failed"
        assert "install it" in state.tasks[0].why
        script()
        assert by_state(performed(plan, store)) == {"done": 1}


class TestFindings:
    def test_each_kind_is_kept_and_not_found_again(self, store: Store, script: Script) -> None:
        script(ceilings={"fp32": 1e9, "copy": 1e9}, algorithms={"direct": 0.001})
        peaks = {"measure": "peaks", "framework": "fake", "device": "cpu"}
        layers = {"measure": "layers", "batch": 2, "method": "in-place"}
        plan = planned(
            layers, {"measure": "memory", "batch": 2}, {"measure": "conv", "batch": 2, "budget": 0.01}, peaks
        )
        state = performed(plan, store)
        assert by_state(state) == {"done": 4}
        found: dict[str, Any] = {finding.kind: finding.to_json() for finding in store.findings.list()}
        assert set(found) == {"layers", "memory", "conv", "peaks"}
        for status in state.tasks:
            finding = found[status.task.kind]
            assert status.runs == (finding["id"],)
            assert finding["task"] == status.task.id
            assert finding["outcome"] == "ok"
            assert finding["environment"]["machine"]["cpu"]
            assert finding["command"][0] == "deepstone"
        assert found["layers"]["layers"][0]["name"] == "conv1"
        assert found["memory"]["predicted"]["total_bytes"] > 0
        assert found["conv"]["mix"]["picked_s"]["median"] > 0
        assert found["peaks"]["peaks"][0]["flops_per_s"]["fp32"]["median"] == pytest.approx(1e9, rel=0.1)
        again = Remembering()
        performed(plan, store, again)
        assert again.begun == []
        assert len(store.findings.ids()) == 4

    def test_what_fails_is_kept_too(self, store: Store, script: Script) -> None:
        script(fault={"at": "step", "step": 0, "kind": "error"})
        state = performed(planned({"measure": "layers"}), store)
        assert state.tasks[0].state == "failed"
        finding: Any = store.findings.get(state.tasks[0].runs[0]).to_json()
        assert (finding["kind"], finding["model"], finding["outcome"]) == ("layers", "cifarnet", "crashed")
        assert finding["failure"]["reason"] == "RuntimeError: scripted failure"


class TestTime:
    def test_what_does_not_fit_is_named(self, store: Store) -> None:
        progress = Remembering()
        plan = planned({"vary": "one", "batch": [1, 2, 4]}, effort={"repetitions": 1, "budget": 1000.0, "target": 50})
        state = performed(plan, store, progress, time_s=1500.0)
        # The estimate is that of a whole budget; the first run shows that it takes a fraction of it.
        assert by_state(state) == {"done": 3}
        assert progress.begun[0].task.changed == {}

    def test_no_time_at_all(self, store: Store) -> None:
        progress = Remembering()
        plan = planned({"batch": [1, 2]}, effort={"repetitions": 1, "budget": 1000.0})
        state = performed(plan, store, progress, time_s=10.0)
        assert progress.begun == []
        assert by_state(state) == {"left out": 2}
        assert re.fullmatch(r"it takes about \d+ min, and 10 s of 10 s were left", state.tasks[0].why)
        assert by_state(performed(planned({"batch": [1, 2]}, effort=ONCE), store)) == {"done": 2}  # taken up later

    def test_it_is_foreseen(self) -> None:
        plan = planned({"vary": "one", "batch": [1, 2, 4]}, effort={"repetitions": 1, "budget": 100.0})
        study_run = StudyRun(plan, None, call(time_s=150.0))
        queue = study_run.foresee()
        assert [status.state for status in queue] == ["waiting", "left out", "left out"]
        assert queue[0].task.changed == {}
        assert 100 < study_run.left_s < 150


def test_a_task_that_another_process_has_is_waited_for(store: Store) -> None:
    plan = planned({"batch": [1, 2]}, effort=ONCE)
    first = StudyRun(plan, store, call()).queue()[0]
    claim = store.claim_job(first.task.id)
    assert claim is not None

    class Releasing(Remembering):
        def waiting(self, tasks: int) -> None:
            super().waiting(tasks)
            claim.release()

    progress = Releasing()
    this = call()
    state = run_study(StudyRun(plan, store, this), store, this, progress)
    assert by_state(state) == {"done": 2}
    assert progress.waits > 0
    assert progress.begun[-1].task.id == first.task.id


def test_what_another_process_stored_meanwhile_counts(store: Store) -> None:
    plan = planned({"batch": [1, 2]}, effort=ONCE)
    this = call()
    study_run = StudyRun(plan, store, this)  # knows a store that is empty
    performed(plan, store)
    progress = Remembering()
    assert by_state(run_study(study_run, store, this, progress)) == {"done": 2}
    assert progress.begun == []
