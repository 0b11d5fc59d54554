"""JAX on the CPU: every value of every axis is honoured and seen to be, or refused with the reason.

One worker serves most of these tests, one job after the other. What changes the whole process has a worker of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from frameworks import environment_of
from msgspec import structs
from patience import shown
from setup_suite import CANNOT_ON_A_CPU, Refusals, RefusedSuite, SetupSuite, refused
from tiny_jobs import tiny_job
from workbench import Bench, bench_of, observed

from deepstone.backends.before_import import JAX_PREALLOCATE
from deepstone.backends.before_import import jax as jax_variables
from deepstone.errors import MissingError
from deepstone.runner.conversation import JobFailed
from deepstone.runner.job import Job
from deepstone.setups.axes import Value, format_cpus
from deepstone.setups.effective import contradiction
from deepstone.setups.request import complete

# JAX says on its error stream what it compiles.
TALKING = {"JAX_LOG_COMPILES": "1"}


def jax_job(**axes: Value) -> Job:
    return tiny_job("jax", environment=environment_of("jax"), **{"device": "cpu", **axes})


worker = partial(bench_of, jax_job)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in TALKING.items():
            patch.setenv(name, value)
        with worker() as bench:
            yield bench


def compilations(bench: Bench) -> int:
    """How many programs XLA has compiled since the worker began."""
    return (bench.talk._scratch / "output.txt").read_text().count("Finished XLA compilation")


class TestHonoured(SetupSuite):
    CHECKPOINTED: ClassVar[str] = "parameters"
    WIDE: ClassVar[str] = "fp64"
    NARROW: ClassVar[dict[str, float]] = {"fp32": 1e-5, "bf16-mixed": 0.02, "bf16": 0.02}

    def test_what_auto_means(self, bench: Bench):
        prepared = bench.prepare()
        axes = ("framework", "device", "layout", "precision", "engine")
        assert {axis: observed(prepared, axis) for axis in axes} == {
            "framework": f"jax@{bench.hello.framework['version']}",
            "device": "cpu",
            "layout": "nhwc",
            "precision": "fp32",
            "engine": "xla",
        }
        assert prepared.effective["compile"].value == "default"
        assert prepared.effective["algorithm"].value == "heuristic"
        assert observed(prepared, "threads") == len(os.sched_getaffinity(0))
        assert observed(prepared, "affinity") == format_cpus(sorted(os.sched_getaffinity(0)))

    @pytest.mark.parametrize("precision", ["fp32", "bf16-mixed", "bf16", "fp64"])
    def test_precision(self, bench: Bench, precision: str):
        assert observed(bench.prepare(precision=precision), "precision") == precision
        wide = np.float64 if precision == "fp64" else np.float32
        assert all(array.dtype == wide for array in bench.arrays("parameters").values())

    def test_what_xla_made_of_it_is_told(self, bench: Bench):
        details = bench.prepare(engine="xla", compile="default").details
        assert details["programs"] == 1
        assert details["program_temporary_bytes"] > 0
        # Whatever we asked for, XLA's libraries for the CPU take images with the channels last.
        assert set(bench.prepare(layout="nchw").details["xla"]["convolutions"]) == {"b01f_01io->b01f"}

    def test_dropout_drops_something_else_in_each_step(self, bench: Bench):
        losses = bench.losses(dropout="on", phase="gradient")
        assert len({round(loss, 5) for loss in losses}) == len(losses)

    def test_checkpointing_needs_less_memory(self, bench: Bench):
        """XLA would undo it unless it is told not to; see settings.py."""
        need = {
            on: bench.prepare(checkpointing=on, batch=64).details["program_temporary_bytes"] for on in ("on", "off")
        }
        assert need["on"] < 0.9 * need["off"]

    def test_input_grad_is_more_work(self, bench: Bench):
        """Nothing of the protocol shows the image's gradient, but the program has one convolution more."""
        count = {on: sum(bench.prepare(input_grad=on).details["xla"]["convolutions"].values()) for on in ("off", "on")}
        assert count["on"] == count["off"] + 1


class TestPrograms:
    def test_only_the_jobs_own_phase_is_compiled_at_first(self, bench: Bench):
        bench.prepare(phase="train", batch=9)
        before = compilations(bench)
        assert before > 0
        bench.talk.block(samples=1)
        assert compilations(bench) == before
        bench.talk.block(samples=1, program="forward")
        assert compilations(bench) > before

    def test_blocks_compile_nothing(self, bench: Bench):
        for axes in ({}, {"dropout": "on"}, {"input": "host"}, {"optimizer": "adam"}, {"phase": "gradient"}):
            bench.prepare(**axes)
            before = compilations(bench)
            bench.talk.block(samples=3, steps_per_sample=2, lead=1)
            bench.talk.losses(2)
            assert compilations(bench) == before, axes

    def test_a_worker_finds_what_another_one_compiled(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """What two jobs have in common; another precision is another program."""
        monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
        monkeypatch.setenv("JAX_LOG_COMPILES", "1")
        kept: list[set[str]] = []
        losses: list[list[float]] = []
        for precision in ("fp32", "fp32", "bf16-mixed"):
            job = structs.replace(jax_job(precision=precision), compile_cache=str(tmp_path / "programs"))
            with bench_of(lambda job=job: job) as bench:
                losses.append(bench.losses(2))
                kept.append({path.name for path in (tmp_path / "programs").glob("jit_*-cache")})
        assert kept[0]
        assert kept[1] == kept[0]
        assert kept[2] > kept[0]
        assert losses[1] == losses[0] != losses[2]

    def test_a_layer_like_one_before_is_not_compiled_again(self, bench: Bench):
        bench.prepare(phase="gradient")
        image = np.ones((8, 32, 8, 8), np.float32)
        bench.talk.layer("relu1", {"conv1": image}, image)
        before = compilations(bench)
        bench.talk.layer("relu2", {"norm": image}, image)
        assert compilations(bench) == before

    def test_phases_come_by_difference(self, bench: Bench):
        """The forward program of a training job trains: it learns the running mean, and leaves the weights alone."""
        assert bench.prepare(phase="train").phases is None
        weights, statistics = bench.arrays("parameters"), bench.arrays("buffers")
        for program in ("forward", "gradient"):
            bench.talk.block(samples=2, program=program)
        after = bench.arrays("parameters")
        assert all(np.array_equal(after[name], weights[name]) for name in weights)
        assert not np.array_equal(bench.arrays("buffers")["norm/running_mean"], statistics["norm/running_mean"])

    def test_samples_are_timed_right_though_the_host_is_ahead(self, bench: Bench):
        """Steps of milliseconds that are handed over at once: no sample may take nothing, or all of the time."""
        bench.prepare(batch=256)

        def timed_right() -> bool:
            block = bench.talk.block(samples=8)
            fills_the_block = sum(block.step_s) == pytest.approx(block.total_s, rel=0.2)
            return fills_the_block and min(block.step_s) > 0.2 * np.median(block.step_s)

        assert shown(timed_right)


class TestWholeProcess:
    @pytest.mark.parametrize("threads", [1, 3])
    def test_threads_are_as_many_as_asked_for(self, threads: int):
        with worker(threads=threads) as limited:
            assert observed(limited.prepare(threads=threads), "threads") == threads

    def test_a_thread_count_that_came_too_late_contradicts(self, bench: Bench):
        asked = len(os.sched_getaffinity(0)) + 3
        bench.talk._job = jax_job(threads=asked)
        prepared = bench.talk.prepare()
        reason = contradiction(bench.talk._job.request, prepared.effective)
        assert reason == f"asked for threads={asked}, but got {asked - 3}"

    def test_it_may_run_on_one_cpu_only(self, cpu: int):
        with worker(affinity=str(cpu)) as limited:
            prepared = limited.prepare(affinity=str(cpu))
            assert observed(prepared, "affinity") == str(cpu)
            assert observed(prepared, "threads") == 1
            threads = [int(path.name) for path in Path(f"/proc/{limited.hello.pid}/task").iterdir()]
            assert {frozenset(os.sched_getaffinity(thread)) for thread in threads} == {frozenset({cpu})}

    def test_variables(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.delenv(JAX_PREALLOCATE, raising=False)
        assert jax_variables(complete({})) == {JAX_PREALLOCATE: "false"}
        assert jax_variables(complete({"device": "cpu", "threads": 3})) == {
            JAX_PREALLOCATE: "false",
            "JAX_PLATFORMS": "cpu",
            "PJRT_NPROC": "3",
            "NPROC": "3",
        }
        monkeypatch.setenv(JAX_PREALLOCATE, "true")  # a user's own choice stays
        assert jax_variables(complete({})) == {}


CANNOT: Refusals = [
    *CANNOT_ON_A_CPU,
    ({"precision": "fp16-mixed"}, "JAX has no loss scaling of its own"),
    *refused("engine", dict.fromkeys(["onednn", "native"], "JAX has no choice of engine")),
    *refused(
        "compile",
        {
            "off": "JAX compiles every operation",
            "graph": "JAX compiles every operation",
            "reduce-overhead": "on a CPU it would be the same as default",
            "max-autotune": "jit in one mode",
            "coordinate-descent": "on a CPU it would be the same as default",
            "max-autotune-no-cudagraphs": "on a CPU it would be the same as max-autotune",
        },
    ),
    *refused("wait", dict.fromkeys(["active", "passive"], "jax does not honour the axis wait")),
    ({"algorithm": "deterministic"}, "one of its GPU compiler"),
    *refused("optimizer", {"momentum-fused": "XLA fuses every update", "own": "one of torch's"}),
    ({"isa": "avx2"}, "it would be one in name only"),
    ({"inter_threads": 2}, "XLA runs independent operations on the threads that share the work of one"),
]


class TestRefused:
    @pytest.mark.parametrize("device", ["cpu", "auto"])
    @pytest.mark.parametrize(("axes", "reason"), CANNOT, ids=str)
    def test_with_the_reason(self, bench: Bench, device: str, axes: dict[str, Value], reason: str):
        """The worker refuses by itself, too: only it knows what `auto` will be. This one sees the CPU alone."""
        with pytest.raises(JobFailed, match=reason) as refusal:
            bench.prepare(device=device, **axes)
        assert refusal.value.outcome == "unsupported"

    def test_a_gpu_that_is_not_there_is_missing_and_not_unsupported(self, bench: Bench):
        with pytest.raises(MissingError, match=r"device gpu:0: JAX finds no usable GPU; .* or use device=cpu"):
            bench.prepare(device="gpu:0")


class TestAfterRefusals(RefusedSuite):
    FRAMEWORK: ClassVar[str] = "jax"
    CANNOT: ClassVar[Refusals] = CANNOT
    HONOURED: ClassVar[dict[str, set[Value]]] = {
        **RefusedSuite.HONOURED,
        "precision": {"auto", "fp32", "bf16-mixed", "bf16", "fp64"},
        "engine": {"auto", "xla"},
        "algorithm": {"auto", "heuristic"},
        "compile": {"auto", "default"},
        "optimizer": {"momentum", "sgd", "adam", "adamw"},
        "space_to_depth": {"off", "on"},  # in test_jax_lowering.py
    }
