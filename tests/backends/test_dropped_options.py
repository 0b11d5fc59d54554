"""Options that a framework drops in silence, planted into the real ones: each is seen, and the setup is unsupported.

One worker for each framework drops everything there is, and is given job after job that asks for one thing of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from frameworks import environment_of
from msgspec.structs import replace
from tiny_jobs import tiny_job

from deepstone.results.record import Effect
from deepstone.runner.conversation import Conversation, JobFailed, Prepared, talking_to_worker
from deepstone.runner.job import Job
from deepstone.runner.measurement import Launched, no_progress, start
from deepstone.setups.axes import Value
from deepstone.setups.effective import contradiction

DROPPED = Path(__file__).parent / "dropped"
TIMEOUT_S = 1800.0
CPUS = sorted(os.sched_getaffinity(0))
MANY = len(CPUS) + 1  # threads that no library starts unasked


def dropping_job(framework: str, **axes: Value) -> Job:
    environment = environment_of(framework)
    variables = {**environment.variables, "PYTHONPATH": str(DROPPED), "DEEPSTONE_TEST_DROP": framework}
    return tiny_job(framework, environment=replace(environment, variables=variables), **{"device": "cpu", **axes})


@contextmanager
def dropping(framework: str) -> Iterator[Conversation]:
    """The variables for threads and instruction sets are set, and nobody reads them."""
    with talking_to_worker(dropping_job(framework, threads=MANY), timeout_s=TIMEOUT_S) as talk:
        talk.hello()
        yield talk


def reason(talk: Conversation, framework: str, **axes: Value) -> str | None:
    job = dropping_job(framework, **axes)
    return contradiction(job.request, talk.prepare(job).effective)


@pytest.fixture(scope="module")
def torch_worker() -> Iterator[Conversation]:
    with dropping("torch") as talk:
        yield talk


class TestTorch:
    @pytest.mark.parametrize("phase", ["forward", "gradient", "train"])
    def test_casting_that_does_not_cast(self, torch_worker: Conversation, phase: str):
        found = reason(torch_worker, "torch", precision="bf16-mixed", phase=phase)
        assert found == "asked for precision=bf16-mixed, but got fp32"

    @pytest.mark.parametrize(
        ("axis", "asked", "got"),
        [
            *(("precision", asked, "fp32") for asked in ("fp16-mixed", "bf16", "fp64")),
            ("layout", "nhwc", "nchw"),
            ("engine", "native", "onednn"),
            ("algorithm", "deterministic", "heuristic"),
            *(("compile", asked, "off") for asked in ("default", "max-autotune")),
        ],
    )
    def test_an_option_without_effect(self, torch_worker: Conversation, axis: str, asked: str, got: str):
        assert reason(torch_worker, "torch", **{axis: asked}) == f"asked for {axis}={asked}, but got {got}"

    def test_compiled_code_that_is_not_cast_for(self, torch_worker: Conversation):
        """Compiled code hides its activations; torch's own state does not."""
        job = dropping_job("torch", compile="default", precision="bf16-mixed")
        assert torch_worker.prepare(job).effective["precision"] == Effect(value="fp32", source="observed")

    @pytest.mark.parametrize("axis", ["threads", "inter_threads"])
    def test_a_count_that_is_not_taken(self, torch_worker: Conversation, axis: str):
        found = reason(torch_worker, "torch", **{axis: MANY})
        assert found is not None
        assert found.startswith(f"asked for {axis}={MANY}, but got ")

    def test_wider_instructions_than_the_limit(self, torch_worker: Conversation):
        found = reason(torch_worker, "torch", isa="sse41")
        assert found is not None
        assert found.startswith("asked for isa=sse41, but got avx")

    @pytest.mark.skipif(len(CPUS) < 2, reason="there is one CPU only")
    def test_cpus_beyond_those_allowed(self, torch_worker: Conversation):
        found = reason(torch_worker, "torch", affinity=str(CPUS[0]))
        assert found is not None
        assert found.startswith(f"asked for affinity={CPUS[0]}, but got {CPUS[0]}")

    def test_what_is_left_alone_is_not_refused(self, torch_worker: Conversation):
        assert reason(torch_worker, "torch") is None
        assert reason(torch_worker, "torch", precision="fp32", layout="nchw", compile="off") is None

    def test_the_run_is_unsupported(self, torch_worker: Conversation):
        torch_worker._job = dropping_job("torch", precision="bf16-mixed")
        with pytest.raises(JobFailed) as failure:
            start(torch_worker, torch_worker._job, Launched(), no_progress)
        assert failure.value.outcome == "unsupported"
        assert failure.value.reason == "asked for precision=bf16-mixed, but got fp32"


@pytest.fixture(scope="module")
def tensorflow_start() -> Iterator[tuple[Conversation, Prepared]]:
    """The pools start with the first job of a process, so that one asks for threads."""
    with dropping("tensorflow") as talk:
        yield talk, talk.prepare(dropping_job("tensorflow", threads=MANY, inter_threads=MANY))


@pytest.fixture
def tensorflow_worker(tensorflow_start: tuple[Conversation, Prepared]) -> Conversation:
    return tensorflow_start[0]


class TestTensorFlow:
    @pytest.mark.parametrize("axis", ["threads", "inter_threads"])
    def test_a_count_that_is_not_taken(self, tensorflow_start: tuple[Conversation, Prepared], axis: str):
        found = contradiction(dropping_job("tensorflow", **{axis: MANY}).request, tensorflow_start[1].effective)
        assert found == f"asked for {axis}={MANY}, but got {len(CPUS)}"

    @pytest.mark.parametrize(
        ("axis", "asked", "got"),
        [
            *(("precision", asked, "fp32") for asked in ("bf16-mixed", "bf16")),
            ("algorithm", "deterministic", "heuristic"),
            ("compile", "graph", "off"),
            ("compile", "default", "graph"),
        ],
    )
    def test_an_option_without_effect(self, tensorflow_worker: Conversation, axis: str, asked: str, got: str):
        assert reason(tensorflow_worker, "tensorflow", **{axis: asked}) == f"asked for {axis}={asked}, but got {got}"

    def test_a_recorded_program_in_other_numbers(self, tensorflow_worker: Conversation):
        job = dropping_job("tensorflow", compile="default", precision="bf16-mixed")
        effective = tensorflow_worker.prepare(job).effective
        assert effective["precision"] == Effect(value="fp32", source="observed")
        assert effective["engine"].source == "observed"
        assert effective["engine"].value in ("onednn", "native")

    def test_a_recorded_program_in_another_order(self, tensorflow_worker: Conversation):
        job = dropping_job("tensorflow", compile="default", layout="nchw")
        assert tensorflow_worker.prepare(job).effective["layout"] == Effect(value="nhwc", source="observed")

    def test_onednn_stays_as_it_is(self, tensorflow_worker: Conversation):
        """Without its variable TensorFlow decides by the CPU, so one of the two is not what it has."""
        refused: list[JobFailed] = []
        for engine in ("onednn", "native"):
            try:
                assert reason(tensorflow_worker, "tensorflow", engine=engine) is None
            except JobFailed as failure:
                refused.append(failure)
        (refusal,) = refused
        assert refusal.outcome == "unsupported"
        assert "this process has engine=" in refusal.reason

    def test_what_is_left_alone_is_not_refused(self, tensorflow_worker: Conversation):
        assert reason(tensorflow_worker, "tensorflow") is None
        assert reason(tensorflow_worker, "tensorflow", precision="fp32", layout="nhwc", compile="off") is None


@pytest.fixture(scope="module")
def jax_worker() -> Iterator[Conversation]:
    with dropping("jax") as talk:
        yield talk


class TestJax:
    @pytest.mark.parametrize(
        ("axis", "asked", "got"),
        [
            *(("precision", asked, "fp32") for asked in ("bf16-mixed", "bf16", "fp64")),
            ("layout", "nchw", "nhwc"),
            ("compile", "default", "off"),
            ("threads", MANY, len(CPUS)),
        ],
    )
    def test_an_option_without_effect(self, jax_worker: Conversation, axis: str, asked: Value, got: Value):
        assert reason(jax_worker, "jax", **{axis: asked}) == f"asked for {axis}={asked}, but got {got}"

    def test_what_is_left_alone_is_not_refused(self, jax_worker: Conversation):
        assert reason(jax_worker, "jax") is None
        assert reason(jax_worker, "jax", precision="fp32", layout="nhwc") is None


@pytest.mark.parametrize("framework", ["mxnet", "chainer"])
def test_old_frameworks(framework: str):
    with dropping(framework) as talk:
        assert reason(talk, framework) is None
        assert reason(talk, framework, precision="fp64") == "asked for precision=fp64, but got fp32"
        found = reason(talk, framework, threads=MANY)
        assert found is not None
        assert found.startswith(f"asked for threads={MANY}, but got ")
        if len(CPUS) > 1:
            found = reason(talk, framework, affinity=str(CPUS[0]))
            assert found is not None
            assert found.startswith(f"asked for affinity={CPUS[0]}, but got {CPUS[0]}")
