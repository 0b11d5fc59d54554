"""TensorFlow on the CPU: every value of every axis is honoured and seen to be, or refused with the reason.

One worker serves most of these tests, one job after the other. What changes the whole process has a worker of its own.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
from frameworks import environment_of
from patience import shown
from setup_suite import (
    CANNOT_ON_A_CPU,
    NativeEngineSuite,
    Refusals,
    RefusedSuite,
    SetupSuite,
    WholeProcessSuite,
    refused,
)
from single_layers import graph_job
from tiny_jobs import tiny_job
from workbench import Bench, bench_of, observed

from deepstone.backends.before_import import tensorflow as tensorflow_environment
from deepstone.backends.tensorflow.isa import widest_of
from deepstone.errors import MissingError
from deepstone.graph.builder import Builder
from deepstone.results.record import Effect
from deepstone.runner.conversation import JobFailed, Prepared
from deepstone.runner.job import Job
from deepstone.setups.axes import ISA_ORDER, Value, format_cpus
from deepstone.setups.request import complete


def job(**axes: Value) -> Job:
    # One thread unless asked: on a busy machine two wait for each other.
    asked: dict[str, Value] = {"device": "cpu", "threads": 1, **axes}
    return tiny_job("tensorflow", environment=environment_of("tensorflow"), **asked)


worker = partial(bench_of, job, shared=True)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """With oneDNN, which TensorFlow turns on by itself on some CPUs only; later jobs of this worker find it on."""
    with worker(engine="onednn") as bench:
        yield bench


class TestHonoured(SetupSuite):
    CHECKPOINTED_AXES: ClassVar[dict[str, Value]] = {"phase": "gradient", "dropout": "on"}

    def test_what_auto_means(self, bench: Bench):
        prepared = bench.prepare(device="auto")
        axes = ("framework", "device", "layout", "precision", "engine", "compile")
        assert {axis: observed(prepared, axis) for axis in axes} == {
            "framework": f"tensorflow@{bench.hello.framework['version']}",
            "device": "cpu",
            "layout": "nhwc",
            "precision": "fp32",
            "engine": "onednn",
            "compile": "graph",
        }
        assert prepared.effective["algorithm"] == Effect(value="heuristic", source="set")
        assert prepared.effective["isa"].source == "set"
        assert prepared.effective["isa"].value in ISA_ORDER
        assert int(observed(prepared, "threads")) == 1
        assert int(observed(prepared, "inter_threads")) >= 1
        assert observed(prepared, "affinity") == format_cpus(sorted(os.sched_getaffinity(0)))

    def test_what_ran_is_told(self, bench: Bench):
        operations = bench.prepare().details["operations"]
        assert operations["ResourceApplyMomentum"] == 7
        assert any(name.startswith("_Mkl") and "Conv2D" in name for name in operations)

    @pytest.mark.parametrize("precision", ["fp32", "bf16-mixed", "bf16", "fp64"])
    def test_precision(self, bench: Bench, precision: str):
        assert observed(bench.prepare(precision=precision), "precision") == precision

    def test_fp64_widens_everything(self, bench: Bench):
        bench.prepare(precision="fp64", phase="gradient")
        for kind in ("parameters", "gradients", "buffers"):
            assert {array.dtype for array in bench.arrays(kind).values()} == {np.dtype(np.float64)}

    def test_eager(self, bench: Bench):
        prepared = bench.prepare(compile="off")
        assert observed(prepared, "compile") == "off"
        assert observed(prepared, "precision") == "fp32"
        assert observed(prepared, "engine") == "onednn"
        assert observed(prepared, "layout") == "nhwc"
        assert bench.losses(compile="off") == pytest.approx(bench.losses(compile="graph"), rel=1e-5)

    def test_engine_onednn(self, bench: Bench):
        assert observed(bench.prepare(engine="onednn"), "engine") == "onednn"

    @pytest.mark.parametrize("asked", [{"engine": "xla"}, {"compile": "default"}], ids=str)
    def test_xla(self, bench: Bench, asked: dict[str, Value]):
        prepared = bench.prepare(**asked)
        assert observed(prepared, "engine") == "xla"
        assert observed(prepared, "compile") == "default"
        assert observed(prepared, "precision") == "fp32"
        assert prepared.first_step_s > 10 * min(bench.talk.block(samples=5).step_s)
        assert bench.losses(**asked) == pytest.approx(bench.losses(), rel=1e-4)

    def test_xla_takes_either_layout(self, bench: Bench):
        assert observed(bench.prepare(engine="xla", layout="nchw"), "layout") == "nchw"

    def test_what_is_dropped_changes_from_step_to_step(self, bench: Bench):
        losses = bench.losses(dropout="on", phase="gradient")
        assert min(abs(a - b) for a, b in itertools.pairwise(losses)) > 1e-4

    def test_input_from_host_memory_costs_a_copy(self, bench: Bench):
        """Fifty megabytes in a step that otherwise looks at one pixel in a thousand."""
        b = Builder("large image")
        few = b.max_pool("few", b.input("data", (3, 512, 512)), kernel=1, stride=32)
        b.softmax_cross_entropy("loss", b.dense("dense", b.flatten("flat", few), features=2))
        graph = b.build()

        def shortest_s(place: str) -> float:
            bench.talk._job = graph_job("tensorflow", graph, input=place, batch=16, phase="forward")
            bench.talk.prepare()
            return min(bench.talk.block(samples=9).step_s)

        assert shown(lambda: shortest_s("host") > 1.2 * shortest_s("resident"))

    def test_input_grad_is_computed(self, bench: Bench):
        """Nothing of the protocol shows it but what ran: one more convolution goes backward to its input."""
        ran = {asked: bench.prepare(input_grad=asked).details["operations"] for asked in ("off", "on")}
        backward = {
            asked: sum(count for name, count in operations.items() if "Conv2DBackpropInput" in name)
            for asked, operations in ran.items()
        }
        assert backward == {"off": 1, "on": 2}

    def test_forward_is_part_of_the_training_step_where_it_serves_to_find_phases(self, bench: Bench):
        bench.prepare(phase="gradient")
        learnt = bench.arrays("buffers")["norm/running_mean"]
        bench.talk.block(samples=1, program="forward")
        again = bench.arrays("buffers")["norm/running_mean"]
        np.testing.assert_allclose(again, 1.9 * learnt, rtol=1e-5)

    @pytest.mark.parametrize(("program", "moves"), [("forward", False), ("gradient", False), ("train", True)])
    def test_the_whole_step_alone_moves_weights(self, bench: Bench, program: str, moves: bool):
        bench.prepare()
        before = bench.arrays("parameters")["dense/weight"]
        assert len(bench.talk.block(samples=2, program=program).step_s) == 2
        assert np.any(bench.arrays("parameters")["dense/weight"] != before) == moves

    def test_gradients_are_kept_in_phase_gradient_alone(self, bench: Bench):
        bench.prepare(phase="train")
        assert bench.arrays("gradients") == {}
        bench.prepare(phase="gradient")
        assert set(bench.arrays("gradients")) == set(bench.arrays("parameters"))

    def test_dropout_drops_the_same_without_a_graph(self, bench: Bench):
        graph = bench.losses(dropout="on")
        assert bench.losses(dropout="on", compile="off") == pytest.approx(graph, rel=1e-5)


LIMITED: dict[str, Value] = {"threads": 3, "inter_threads": 4, "isa": "avx2", "algorithm": "deterministic"}


class TestWholeProcess(WholeProcessSuite):
    LIMITED = LIMITED

    def test_the_limit_of_instructions_is_not_read_back(self, limited: tuple[Bench, Prepared]):
        assert limited[1].effective["isa"] == Effect(value=LIMITED["isa"], source="set")

    def test_other_threads_are_refused_once_they_run(self, limited: tuple[Bench, Prepared]):
        with pytest.raises(JobFailed, match="this one has threads=3 inter_threads=4") as refusal:
            limited[0].prepare(threads=1)
        assert refusal.value.outcome == "unsupported"


@pytest.fixture(scope="module")
def native() -> Iterator[Bench]:
    """The user's own variable asks for the contrary."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
        with worker(engine="native") as bench:
            yield bench


class TestNativeEngine(NativeEngineSuite):
    def test_no_onednn_operation_ran(self, native: Bench):
        operations = native.prepare(engine="native").details["operations"]
        assert not any(name.startswith("_Mkl") for name in operations)

    def test_it_does_not_turn_into_onednn(self, native: Bench):
        with pytest.raises(JobFailed, match="this process has engine=native"):
            native.prepare(engine="onednn")

    def test_it_takes_channels_last_only(self, native: Bench):
        with pytest.raises(JobFailed, match="TensorFlow's own kernels take NHWC only"):
            native.prepare(engine="native", layout="nchw")


CANNOT: Refusals = [
    *CANNOT_ON_A_CPU,
    ({"precision": "fp16-mixed"}, "needs loss scaling"),
    ({"engine": "native"}, "this process has engine=onednn"),
    *refused("compile", dict.fromkeys(["graph", "off"], "compile=off and graph ask for none"), engine="xla"),
    ({"engine": "onednn", "precision": "fp64"}, "TensorFlow leaves fp64 to its own kernels"),
    ({"engine": "onednn", "compile": "default"}, "other engines ask for other kernels"),
    *refused(
        "compile",
        {
            "max-autotune": "one mode",
            "coordinate-descent": "on a CPU it would be the same as default",
            "max-autotune-no-cudagraphs": "on a CPU it would be the same as max-autotune",
            "reduce-overhead": "replays CUDA graphs",
        },
    ),
    ({"layout": "nchw", "precision": "fp64"}, "kernels for fp64 take NHWC only"),
    ({"layout": "nchw", "compile": "off"}, "MaxPoolGrad takes NHWC only"),
    *refused("optimizer", {"momentum-fused": "one kernel already", "own": "one of torch's"}),
    ({"isa": "sse41"}, "compiled for AVX"),
    *refused("wait", dict.fromkeys(["active", "passive"], "tensorflow does not honour the axis wait")),
]


class TestRefused:
    @pytest.mark.parametrize(("axes", "reason"), CANNOT, ids=str)
    def test_with_the_reason(self, bench: Bench, axes: dict[str, Value], reason: str):
        with pytest.raises(JobFailed, match=reason) as refusal:
            bench.prepare(**axes)
        assert refusal.value.outcome == "unsupported"

    def test_a_gpu_that_is_not_there_is_missing_and_not_unsupported(self, bench: Bench):
        with pytest.raises(
            MissingError, match=r"device gpu:0: .*install a GPU build of TensorFlow.* or use device=cpu"
        ):
            bench.prepare(device="gpu:0")

    def test_batch_norm_cannot_learn_from_one_value(self, bench: Bench):
        b = Builder("one value")
        x = b.batch_norm("norm", b.global_pool("pool", b.input("data", (4, 3, 3))))
        b.softmax_cross_entropy("loss", b.dense("dense", b.flatten("flat", x), features=2))
        bench.talk._job = graph_job("tensorflow", b.build(), batch=1)
        with pytest.raises(JobFailed, match="batch_norm needs two values per channel") as refusal:
            bench.talk.prepare()
        assert refusal.value.outcome == "unsupported"


class TestAfterRefusals(RefusedSuite):
    FRAMEWORK: ClassVar[str] = "tensorflow"
    CANNOT: ClassVar[Refusals] = CANNOT
    HONOURED: ClassVar[dict[str, set[Value]]] = {
        **RefusedSuite.HONOURED,
        "precision": {"auto", "fp32", "bf16-mixed", "bf16", "fp64"},
        "engine": {"auto", "onednn", "native", "xla"},
        "algorithm": {"auto", "heuristic", "deterministic"},
        "compile": {"auto", "off", "graph", "default"},
        "optimizer": {"momentum", "sgd", "adam", "adamw"},
    }


class TestVariables:
    """What the controller puts into the worker's environment."""

    @pytest.fixture(autouse=True)
    def clean(self, monkeypatch: pytest.MonkeyPatch):
        for name in ("TF_CPP_MIN_LOG_LEVEL", "XLA_FLAGS"):
            monkeypatch.delenv(name, raising=False)

    def test_nothing_is_changed_unasked_but_chatter(self):
        assert tensorflow_environment(complete({})) == {"TF_CPP_MIN_LOG_LEVEL": "2"}

    def test_the_users_own_log_level_stays(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
        assert tensorflow_environment(complete({})) == {}

    @pytest.mark.parametrize(("engine", "value"), [("onednn", "1"), ("native", "0")])
    def test_engine(self, engine: str, value: str):
        assert tensorflow_environment(complete({"engine": engine}))["TF_ENABLE_ONEDNN_OPTS"] == value

    def test_the_limit_of_instructions_is_set_for_both_libraries(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("XLA_FLAGS", "--xla_of_the_user=1")
        variables = tensorflow_environment(complete({"isa": "avx2"}))
        assert variables["ONEDNN_MAX_CPU_ISA"] == "AVX2"
        assert variables["XLA_FLAGS"] == "--xla_of_the_user=1 --xla_cpu_max_isa=AVX2"

    def test_every_instruction_set_has_one_in_xla_that_is_no_wider(self):
        flags = [tensorflow_environment(complete({"isa": isa}))["XLA_FLAGS"] for isa in ISA_ORDER]
        names = [flag.rpartition("=")[2] for flag in flags]
        order = ["SSE4_2", "AVX", "AVX2", "AVX512", "AVX512_VNNI", "AVX512_BF16", "AMX", "AMX_FP16"]
        assert names[:5] == ["SSE4_2", "AVX", "AVX2", "AVX2", "AVX2"]
        assert set(names) <= set(order)
        assert [names[ISA_ORDER.index(isa)] for isa in ("avx512_core", "avx512_core_amx")] == ["AVX512", "AMX"]


AVX512 = {"sse4_1", "avx", "avx2", "avx512f", "avx512bw", "avx512vl", "avx512dq"}


@pytest.mark.parametrize(
    ("flags", "limit", "isa"),
    [
        ({"sse4_1"}, "", "sse41"),
        ({"sse4_1", "avx", "avx2"}, "", "avx2"),
        (AVX512, "", "avx512_core"),
        (AVX512, "avx2", "avx2"),
        (AVX512, "all", "avx512_core"),
        (AVX512 | {"avx512_vnni"}, "", "avx512_core_vnni"),
        (AVX512, "avx512_core_amx", "avx512_core"),
        (AVX512 - {"avx512vl"}, "", "avx2"),
    ],
)
def test_the_widest_instruction_set(flags: set[str], limit: str, isa: str):
    assert widest_of(flags, limit) == isa
