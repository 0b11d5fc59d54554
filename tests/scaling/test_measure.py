"""What was measured before an interruption is kept."""

from __future__ import annotations

import json

import pytest

from deepstone.backends.before_import import FAKE_SCRIPT
from deepstone.results.comm import CommCurves
from deepstone.scaling.comm import finding_of, plan_comm
from deepstone.scaling.comm_words import read_words
from deepstone.scaling.measure import CommMeasured, CommPlan, measure_comm


class Interrupt(BaseException):
    """As a signal raises it, in the midst of things."""


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> CommPlan:
    monkeypatch.setenv(FAKE_SCRIPT, json.dumps({"noise": 0.01, "seed": 1}))
    words = read_words(["framework=fake", "processes=2", "operation=allreduce", "size=1K,64K,1M"])
    command = ("deepstone", "comm")
    return plan_comm(words, None, command, launches=3, budget_s=2.0, timeout_s=60.0, under_load=False)


def test_what_was_measured_before_a_signal_is_a_result(plan: CommPlan) -> None:
    measured = CommMeasured.nothing_yet(plan)

    def stop(stage: str, share: float) -> None:
        if share > 1.5 / 3:
            raise Interrupt

    with pytest.raises(Interrupt):
        measure_comm(plan, measured, stop)
    content = finding_of(plan, measured).content
    assert isinstance(content, CommCurves)
    assert (content.launches, content.interval) == (2, "across launches")
    (curve,) = content.curves
    assert all(point.seconds is not None for point in curve.points)


def test_nothing_measured_yet_has_no_curves(plan: CommPlan) -> None:
    measured = CommMeasured.nothing_yet(plan)
    content = finding_of(plan, measured).content
    assert isinstance(content, CommCurves)
    assert content.curves == []
    assert measured.launches == 0
