"""Torch's profiler on real steps: operators and their layers, the trace file, and layers of a compiled network."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_jobs import tiny, tiny_job
from workbench import Bench, bench_of

from deepstone.graph.ops import Dropout, Flatten, Input
from deepstone.runner.conversation import JobFailed
from deepstone.runner.job import Job
from deepstone.setups.axes import Value

STEPS = 2


def job(**axes: Value) -> Job:
    return tiny_job("torch", **{"device": "cpu", "threads": 1, **axes})


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with bench_of(job, shared=True) as bench:
        yield bench


def kernels(traced: dict) -> dict[str, dict]:
    return {row["name"]: row for row in traced["kernels"]}


class TestEager:
    def test_operators_with_counts_times_and_layers(self, bench: Bench):
        bench.prepare()
        traced = bench.talk.trace(STEPS).to_json()
        found = kernels(traced)
        assert found["aten::mkldnn_convolution"]["count"] == 2 * STEPS
        assert found["aten::mkldnn_convolution"]["layers"] == ["conv1", "conv2"]
        assert found["aten::convolution_backward"]["layers"] == ["conv1", "conv2"]
        assert found["aten::threshold_backward"]["layers"] == ["relu1", "relu2"]
        assert found["aten::native_batch_norm_backward"]["layers"] == ["norm"]
        assert found["aten::addmm"]["layers"] == ["dense"]
        assert found["aten::nll_loss_backward"]["layers"] == ["loss"]
        assert all(row["total_s"] >= 0 and row["count"] > 0 and row["kind"] == "kernel" for row in traced["kernels"])
        assert sum(row["total_s"] for row in traced["kernels"]) == pytest.approx(traced["busy_s"], rel=0.05)
        assert 0 < traced["busy_s"] <= traced["span_s"]
        assert "absent" in traced["calls"]
        assert "absent" in traced["idle"]

    def test_the_update_belongs_to_no_layer(self, bench: Bench):
        bench.prepare(optimizer="momentum")
        assert kernels(bench.talk.trace(STEPS).to_json())["aten::mul_"]["layers"] == []

    def test_forward_alone(self, bench: Bench):
        bench.prepare(phase="forward")
        found = kernels(bench.talk.trace(1).to_json())
        assert found["aten::addmm"]["layers"] == ["dense"]
        assert not any("backward" in name for name in found)

    def test_checkpointing_runs_forward_again(self, bench: Bench):
        bench.prepare(checkpointing="on")
        found = kernels(bench.talk.trace(1).to_json())
        assert found["aten::mkldnn_convolution"]["count"] > 2
        assert found["aten::convolution_backward"]["layers"] == ["conv1", "conv2"]

    def test_traced_steps_are_steps_like_others(self, bench: Bench):
        plain = bench.losses(steps=5)
        bench.prepare()
        bench.talk.trace(2)  # and one more, which leads
        assert bench.talk.losses(1) == pytest.approx(plain[-1:], rel=1e-4)


class TestFile:
    @pytest.mark.parametrize("name", ["steps.json", "steps.json.gz"])
    def test_a_chrome_trace_is_written(self, bench: Bench, tmp_path: Path, name: str):
        bench.prepare()
        path = tmp_path / name
        bench.talk.trace(1, str(path))
        content = path.read_bytes()
        events = json.loads(gzip.decompress(content) if name.endswith(".gz") else content)["traceEvents"]
        assert {"aten::mkldnn_convolution", "deepstone layer: conv1"} <= {event["name"] for event in events}

    def test_where_none_can_be_written(self, bench: Bench, tmp_path: Path):
        bench.prepare()
        path = tmp_path / "not there" / "steps.json"
        with pytest.raises(JobFailed, match=rf"cannot write the trace to {path}: No such file or directory"):
            bench.talk.trace(1, str(path))


def test_onednn_says_what_it_used_for_each_layer(bench: Bench):
    found = dict(bench.prepare().details["onednn_by_layer"])
    passes = {layer: [text.split(":")[0] for text in texts] for layer, texts in found.items()}
    assert passes["conv1"] == ["forward", "weight gradient"]
    assert passes["conv2"] == ["forward", "data gradient", "weight gradient"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_layers_of_a_compiled_network(bench: Bench):
    bench.talk._job = job(compile="default")
    bench.talk.build()  # without a first step: the traced network is compiled by itself
    found = bench.talk.layers(3)
    silent = (Input, Flatten, Dropout)  # their work is none
    working = [layer.name for layer in tiny().layers if not isinstance(layer.op, silent)]
    assert [name for name in working if (name, "forward") not in found.layers_s] == []
    assert [name for name in working if (name, "backward") not in found.layers_s] == []
    for number, total_s in enumerate(found.total_s):
        layers_s = sum(times_s[number] for times_s in found.layers_s.values())
        other_s = sum(times_s[number] for times_s in found.other_s.values())
        parts_s = layers_s + other_s + found.data_s[number] + found.update_s[number] + found.gaps_s[number]
        assert parts_s == pytest.approx(total_s)
    assert min(found.layers_s["conv2", "backward"]) > min(found.layers_s["loss", "backward"])
    traced = kernels(bench.talk.trace(1).to_json())
    assert traced["aten::convolution_backward"]["layers"] == ["conv1", "conv2"]
    fused = [row["layers"] for name, row in traced.items() if "cpp_fused" in name]
    assert any({"norm", "relu2"} <= set(layers) for layers in fused)
