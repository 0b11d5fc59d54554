"""What only a GPU can show of the profiler. test_torch_recordings.py asks the same of recordings written by hand."""

from __future__ import annotations

import pytest
import torch
from tiny_jobs import tiny_job
from workbench import Bench

from deepstone.runner.job import Job
from deepstone.setups.axes import Value

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

STEPS = 3
WORKING = {"conv1", "relu1", "conv2", "norm", "dense", "loss"}


def job(**axes: Value) -> Job:
    return tiny_job("torch", **{"device": "gpu:0", "batch": 64, **axes})


@pytest.mark.parametrize("compile_mode", ["off", "default", "reduce-overhead"])
def test_kernels_calls_and_idle_time(bench: Bench, compile_mode: str):
    bench.prepare(compile=compile_mode)
    traced = bench.talk.trace(STEPS).to_json()
    assert 0 < traced["busy_s"] <= traced["span_s"]
    assert traced["busy_s"] + sum(traced["idle"].values()) == pytest.approx(traced["span_s"])
    assert any(row["kind"] == "launch" and row["count"] >= STEPS for row in traced["calls"])
    assert {layer for row in traced["kernels"] for layer in row["layers"]} >= WORKING
    assert all(row["count"] % STEPS == 0 for row in traced["kernels"])


def test_copies_are_told_from_kernels(bench: Bench):
    bench.prepare(input="pinned")
    assert {"kernel", "copy"} <= {row["kind"] for row in bench.talk.trace(STEPS).to_json()["kernels"]}


@pytest.mark.parametrize("compile_mode", ["default", "reduce-overhead"])
def test_layers_of_a_compiled_network(bench: Bench, compile_mode: str):
    bench.prepare(compile=compile_mode)
    found = bench.talk.layers(STEPS)
    for direction in ("forward", "backward"):
        seen = {name for (name, passed), times_s in found.layers_s.items() if passed == direction and min(times_s) > 0}
        assert seen >= WORKING
    assert min(found.update_s) > 0
    for number, total_s in enumerate(found.total_s):
        owned_s = [*found.layers_s.values(), *found.other_s.values(), found.data_s, found.update_s, found.gaps_s]
        assert sum(times_s[number] for times_s in owned_s) == pytest.approx(total_s)
