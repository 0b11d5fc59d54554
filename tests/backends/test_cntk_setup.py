"""CNTK: what the contract does not ask of every backend. One worker, one job after the other."""

from __future__ import annotations

import numpy as np
import pytest
from frameworks import environment_of
from setup_suite import LegacySetupSuite
from tiny_jobs import tiny, tiny_job
from workbench import Bench, observed

from deepstone.backends.base import ADAM_LEARNING_RATE
from deepstone.graph.weights import initial_parameters
from deepstone.runner.job import Job
from deepstone.setups.axes import Value


def job(**axes: Value) -> Job:
    return tiny_job("cntk", environment=environment_of("cntk"), **{"threads": 1, **axes})


def test_threads_are_read_back(bench: Bench):
    """One, where CNTK by itself takes all cores. No other number in this process: MKL would divide by zero."""
    assert observed(bench.prepare(), "threads") == 1


class TestHonoured(LegacySetupSuite):
    pass


def test_dropout_drops_nothing_in_evaluation(bench: Bench):
    assert len({round(loss, 4) for loss in bench.losses(dropout="on", phase="forward")}) == 1


def test_adam_moves_every_weight_by_its_rate_at_first(bench: Bench):
    bench.prepare(optimizer="adam")
    moved = bench.arrays("parameters")["dense/weight"] - initial_parameters(tiny(), 0)["dense"]["weight"]
    assert np.median(np.abs(moved)) == pytest.approx(ADAM_LEARNING_RATE, rel=1e-2)


def test_momentum_is_kept_between_steps(bench: Bench):
    with_momentum, without = bench.losses(), bench.losses(optimizer="sgd")
    assert with_momentum[:2] == pytest.approx(without[:2], rel=1e-6)
    assert with_momentum[3] < without[3] - 1e-6


def test_programs_that_time_phases_do_not_train_nor_change_what_is_told(bench: Bench):
    alone = bench.losses()
    bench.prepare()
    for program in ("forward", "gradient"):
        bench.talk.block(samples=1, program=program)
    assert bench.talk.losses(3) == pytest.approx(alone[1:], rel=1e-5)
