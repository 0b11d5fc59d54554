"""Paddle: what the contract does not ask of every backend. One worker, one job after the other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from frameworks import environment_of
from setup_suite import LegacySetupSuite
from tiny_jobs import tiny, tiny_job
from workbench import Bench, bench_of, observed

from deepstone.backends.base import ADAM_LEARNING_RATE
from deepstone.graph.ops import Conv, Dense, Dropout, Flatten, Input
from deepstone.graph.weights import initial_parameters
from deepstone.runner.conversation import JobFailed
from deepstone.runner.job import Job
from deepstone.setups.axes import Value
from deepstone.setups.request import complete
from deepstone.setups.rules import broken_rule


def job(**axes: Value) -> Job:
    return tiny_job("paddle", environment=environment_of("paddle"), **{"threads": 1, **axes})


@pytest.mark.parametrize("asked", ["auto", 2])
def test_threads_are_read_back(asked: Value, monkeypatch: pytest.MonkeyPatch):
    """Left to itself Paddle takes one, whatever the machine has."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with bench_of(job, threads=asked) as bench:
        found = bench.prepare(threads=asked)
    assert observed(found, "threads") == (1 if asked == "auto" else asked)


def test_no_step_reaches_onednn(bench: Bench):
    assert observed(bench.prepare(), "engine") == "native"


def test_precision_is_read_back(bench: Bench):
    assert observed(bench.prepare(precision="fp64"), "precision") == "fp64"
    assert bench.arrays("gradients")["conv1/weight"].dtype == np.float64
    assert observed(bench.prepare(), "precision") == "fp32"
    assert bench.arrays("gradients")["conv1/weight"].dtype == np.float32


class TestHonoured(LegacySetupSuite):
    pass


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_adam_moves_every_weight_by_its_rate_at_first(bench: Bench, precision: str):
    bench.prepare(optimizer="adam", precision=precision)
    moved = bench.arrays("parameters")["dense/weight"] - initial_parameters(tiny(), 0)["dense"]["weight"]
    assert np.median(np.abs(moved)) == pytest.approx(ADAM_LEARNING_RATE, rel=1e-2)


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_momentum_begins_like_sgd_and_gets_ahead_of_it(bench: Bench, precision: str):
    sgd = bench.losses(optimizer="sgd", precision=precision)
    momentum = bench.losses(optimizer="momentum", precision=precision)
    assert momentum[:2] == pytest.approx(sgd[:2], rel=1e-6)
    assert momentum[3] < sgd[3] * (1 - 1e-5)


@pytest.mark.parametrize(
    "refused", [{"optimizer": "momentum-fused"}, {"precision": "bf16"}, {"layout": "nhwc"}], ids=str
)
def test_what_it_cannot_is_unsupported_and_named(bench: Bench, refused: dict[str, Value]):
    (axis,) = refused
    with pytest.raises(JobFailed, match=f"paddle 3.* does not honour {axis}=") as failure:
        bench.prepare(**refused)
    assert failure.value.outcome == "unsupported"


@pytest.mark.parametrize("refused", [{"compile": "default"}, {"isa": "avx2"}, {"checkpointing": "on"}], ids=str)
def test_axes_that_it_does_not_have_need_no_process(refused: dict[str, Value]):
    (axis,) = refused
    assert broken_rule(complete({"framework": "paddle", **refused})) == f"paddle does not honour the axis {axis}"


class TestAlone:
    @pytest.mark.parametrize("phase", ["forward", "gradient"])
    def test_every_layer_that_works_runs_by_itself(self, bench: Bench, phase: str):
        bench.prepare(phase=phase)
        before = bench.talk.losses(1)
        for layer in tiny().layers:
            programs = bench.talk.isolated(layer.name).names
            assert set(programs) == self.expected(layer.name, phase), layer.name
            for program in programs:
                times_s = bench.talk.isolated_block(program, samples=2, steps_per_sample=2, lead=1).step_s
                assert all(math.isfinite(step_s) and step_s > 0 for step_s in times_s), (layer.name, program)
        assert bench.talk.losses(1) == before

    def expected(self, name: str, phase: str) -> set[str]:
        op = tiny().layer(name).op
        if isinstance(op, Input | Dropout | Flatten):
            return set()
        if phase == "forward":
            return {"forward"}
        if not isinstance(op, Conv | Dense):
            return {"forward", "backward"}
        return {"forward", "backward", "weight"} | ({"data"} if name in tiny().after_parameters else set())

    def test_the_image_has_a_gradient_if_asked_for(self, bench: Bench):
        bench.prepare(phase="gradient", input_grad="on")
        assert "data" in bench.talk.isolated("conv1").names

    def test_one_gradient_takes_less_than_both(self, bench: Bench):
        """A kernel that computed both whatever is wanted would take as long for either."""
        bench.prepare(phase="gradient", batch=64)
        bench.talk.isolated("conv2")
        least_s = {
            program: min(bench.talk.isolated_block(program, samples=9, steps_per_sample=2, lead=2).step_s)
            for program in ("backward", "data", "weight")
        }
        assert max(least_s["data"], least_s["weight"]) < 0.9 * least_s["backward"]
