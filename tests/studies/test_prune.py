"""What must fail is not tried."""

from __future__ import annotations

from study_kit import planned

from deepstone.studies.state import Task
from deepstone.studies.study_run import Pruner


def task(*, round: int = 1, **axes: object) -> Task:
    return planned(axes).tasks[round - 1]


def test_larger_batches_after_an_out_of_memory() -> None:
    pruner = Pruner()
    pruner.learn(task(batch=16), "oom", "no room")
    pruner.learn(task(batch=64), "oom", "no room")
    assert pruner.why_hopeless(task(batch=8)) == ""
    assert pruner.why_hopeless(task(batch=32)) == "oom: batch 16 of the same setup ran out of memory"
    assert pruner.why_hopeless(task(batch=16, round=2)) == "oom: the same setup ran out of memory"
    assert pruner.why_hopeless(task(batch=32, layout="nhwc")) == ""


def test_a_larger_batch_tells_nothing_of_a_smaller_one() -> None:
    pruner = Pruner()
    pruner.learn(task(batch=64), "oom", "no room")
    assert pruner.why_hopeless(task(batch=32)) == ""


def test_other_rounds_of_what_is_unsupported() -> None:
    pruner = Pruner()
    pruner.learn(task(batch=8), "unsupported", "cannot")
    assert pruner.why_hopeless(task(batch=8, round=2)) == "unsupported: cannot"
    assert pruner.why_hopeless(task(batch=16)) == ""


def test_a_crash_or_a_timeout_may_go_well_the_next_time() -> None:
    pruner = Pruner()
    pruner.learn(task(batch=8), "crashed", "signal 11")
    pruner.learn(task(batch=8), "timeout", "900 s")
    assert pruner.why_hopeless(task(batch=8, round=2)) == ""
