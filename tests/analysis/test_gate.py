"""Which changes are regressions, and which runs may be held against each other at all."""

from __future__ import annotations

from typing import Any

import pytest
from factory import JsonRecord, make_record, sha
from hypothesis import given
from hypothesis import strategies as st
from of_json import judge

from deepstone.analysis.gate import Gate, Judged
from deepstone.results.identity import canonical_sha256, run_id


def rounds(*steps_s: float, **settings: Any) -> list[JsonRecord]:
    return [make_record(step_s=step_s, repetition=number, **settings) for number, step_s in enumerate(steps_s, 1)]


def renamed(record: JsonRecord, **identity: Any) -> Any:
    """The record under another identity, with the names that follow from it."""
    changed: Any = {**record, "identity": {**record["identity"], **identity}}
    changed["job"] = canonical_sha256(changed["identity"])
    changed["id"] = run_id(changed["job"], 1)
    return changed


def only(gate: Gate) -> Judged:
    (judged,) = gate.jobs
    return judged


BASE = (0.0100, 0.0101, 0.0099, 0.0100, 0.0101)


def scaled(factor: float) -> tuple[float, ...]:
    return tuple(step_s * factor for step_s in BASE)


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [(1.0, "no change shown"), (1.03, "no change shown"), (1.10, "regression"), (2.0, "regression"), (0.8, "faster")],
)
def test_rounds_are_held_to_the_tolerance(factor: float, verdict: str):
    judged = only(judge(rounds(*BASE), rounds(*scaled(factor))))
    assert judged.verdict == verdict
    assert judged.ratio is not None
    assert judged.ratio.median == pytest.approx(1 / factor, rel=0.01)
    assert judged.limit == 0.05


def test_the_tolerance_can_be_set():
    assert only(judge(rounds(*BASE), rounds(*scaled(1.10)), tolerance=0.2)).verdict == "no change shown"
    assert only(judge(rounds(*BASE), rounds(*scaled(1.30)), tolerance=0.2)).verdict == "regression"


def test_an_interval_that_reaches_into_the_tolerance_is_no_regression():
    noisy = rounds(0.010, 0.014, 0.009, 0.013)
    assert only(judge(rounds(*BASE), noisy)).verdict == "no change shown"


def test_one_process_on_a_side_must_differ_by_more_than_processes_do():
    before = [make_record(step_s=0.0100)]
    assert only(judge(before, [make_record(step_s=0.0109)])).verdict == "no change shown"
    judged = only(judge(before, [make_record(step_s=0.0125)]))
    assert (judged.verdict, judged.limit) == ("regression", 0.10)


@given(st.floats(0.5, 2.0), st.floats(0.0, 0.5))
def test_better_and_worse_mirror_each_other(factor: float, tolerance: float):
    there = only(judge(rounds(*BASE), rounds(*scaled(factor)), tolerance=tolerance))
    back = only(judge(rounds(*scaled(factor)), rounds(*BASE), tolerance=tolerance))
    mirror = {"regression": "faster", "faster": "regression", "no change shown": "no change shown"}
    assert back.verdict == mirror[there.verdict]


class TestOutcomes:
    def test_what_worked_and_fails_is_a_regression(self):
        judged = only(judge([make_record()], [make_record(outcome="oom")]))
        assert judged.verdict == "regression"
        assert "oom: the worker ended: oom" in judged.why

    def test_one_round_that_fails_is_one_too_many(self):
        now = rounds(*BASE[:4])
        now.append(make_record(repetition=5, outcome="crashed"))
        assert only(judge(rounds(*BASE), now)).verdict == "regression"

    def test_the_newest_run_counts_though_an_older_one_was_good(self):
        good = make_record(started_at="2026-01-01T00:00:00.000000Z")
        bad = make_record(started_at="2026-01-02T00:00:00.000000Z", attempt=2, outcome="crashed")
        for now in ([good, bad], [bad, good]):
            assert only(judge([make_record()], now)).verdict == "regression"

    def test_what_failed_and_works(self):
        gate = judge([make_record(outcome="oom")], [make_record()])
        assert only(gate).verdict == "works again"
        assert not gate.compared

    def test_what_fails_on_both_sides(self):
        gate = judge([make_record(outcome="oom")], [make_record(outcome="oom")])
        assert only(gate).verdict == "fails as before"
        assert not gate.compared


class TestWhichRuns:
    def test_new_and_vanished_jobs_are_told(self):
        gate = judge([make_record(batch=1)], [make_record(batch=2)])
        assert [(judged.verdict, judged.now is None) for judged in gate.jobs] == [("new", False), ("vanished", True)]
        assert not gate.compared
        assert not gate.to_json()["passed"]

    @pytest.mark.parametrize("other", [{"phase": "forward"}, {"model": "vgg16"}, {"requested": {"layout": "nhwc"}}])
    def test_another_job_is_never_compared(self, other: dict[str, Any]):
        assert not judge([make_record()], [make_record(step_s=1.0, **other)]).compared

    def test_another_machine_is_not_compared_and_the_reason_is_told(self):
        gate = judge([make_record()], [renamed(make_record(step_s=1.0), machine_sha=sha("other"))])
        assert {judged.verdict for judged in gate.jobs} == {"not comparable", "vanished"}
        assert "another machine" in gate.of("not comparable")[0].why

    def test_another_version_of_the_framework_is_what_is_gated(self):
        now = renamed(make_record(step_s=0.5), environment_sha=sha("newer"))
        now["environment"]["framework"] = {"name": "torch", "version": "2.10.0"}
        judged = only(judge([make_record()], [now]))
        assert judged.verdict == "regression"
        assert judged.versions == ("torch 2.9.0 → 2.10.0",)

    def test_a_framework_asked_for_by_version_is_the_same_job(self):
        def run(version: str, step_s: float) -> JsonRecord:
            return make_record(requested={"framework": f"torch@{version}"}, step_s=step_s)

        assert only(judge([run("2.9.0", 0.01)], [run("2.10.0", 0.02)])).verdict == "regression"

    def test_auto_that_took_another_framework_is_not_compared(self):
        def run(name: str) -> Any:
            record: Any = make_record(requested={"framework": "auto"})
            record["setup"]["effective"]["framework"] = {"value": f"{name}@1", "source": "set"}
            return record

        judged = only(judge([run("torch")], [run("jax")]))
        assert judged.verdict == "not comparable"
        assert "torch" in judged.why
        assert "jax" in judged.why

    def test_of_several_versions_the_one_measured_last_counts(self):
        old = make_record(step_s=1.0, started_at="2026-01-01T00:00:00.000000Z")
        new = renamed(make_record(started_at="2026-01-02T00:00:00.000000Z"), environment_sha=sha("newer"))
        for now in ([old, new], [new, old]):
            assert only(judge([make_record()], now)).verdict == "no change shown"

    def test_nothing_on_either_side(self):
        assert judge([], []).jobs == ()


class TestMemory:
    def grown(self, share: float) -> Any:
        record: Any = make_record()
        record["memory"] = {"host_peak_bytes": round(123_456_789 * share), "analytic_bytes": 10**12}
        return record

    def test_peaks_are_looked_at_when_asked(self):
        assert only(judge([make_record()], [self.grown(2.0)])).verdict == "no change shown"
        judged = only(judge([make_record()], [self.grown(2.0)], memory=True))
        assert judged.verdict == "regression"
        assert "host_peak_bytes" in judged.why

    def test_within_the_tolerance_they_may_grow(self):
        assert only(judge([make_record()], [self.grown(1.04)], memory=True)).verdict == "no change shown"

    def test_what_was_calculated_is_not_measured(self):
        judged = only(judge([self.grown(1)], [self.grown(1)], memory=True))
        assert [change.kind for change in judged.memory] == ["host_peak_bytes"]

    def test_memory_that_is_absent_is_no_number(self):
        record: Any = make_record()
        record["memory"] = {"absent": "not asked"}
        assert only(judge([record], [make_record()], memory=True)).memory == ()
