"""ONNX Runtime: what the contract does not ask of every backend. One worker, one job after the other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from frameworks import environment_of
from msgspec.structs import replace
from single_layers import graph_job
from test_between_convolutions import between
from tiny_jobs import tiny_job
from workbench import TIMEOUT_S, Bench, observed

from deepstone.graph import reference
from deepstone.graph.weights import initial_parameters, synthetic_batch
from deepstone.runner.conversation import JobFailed, talking_to_worker
from deepstone.runner.job import Job
from deepstone.setups.axes import Value

BATCH = 2


def job(**axes: Value) -> Job:
    environment = environment_of("onnxruntime")
    return tiny_job("onnxruntime", environment=environment, **{"threads": 1, "phase": "forward", **axes})


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_are_read_back(bench: Bench, threads: int):
    """Also where the job before had others."""
    assert observed(bench.prepare(threads=threads), "threads") == threads


def test_operations_side_by_side_have_threads_of_their_own(bench: Bench):
    prepared = bench.prepare(threads=2, inter_threads=3)
    assert observed(prepared, "threads") == 2
    assert prepared.effective["inter_threads"].value == 3
    assert bench.losses(threads=2, inter_threads=3) == pytest.approx(bench.losses(), rel=1e-5)


def test_the_threads_of_its_own_choice_stay_on_the_cpus_it_may_use():
    """Left alone, it would have one for each core of the machine, and bind each to one of them."""
    cpu = min(os.sched_getaffinity(0))
    if os.cpu_count() == 1:
        pytest.skip("there is one CPU only")
    with talking_to_worker(job(threads="auto", affinity=str(cpu)), timeout_s=TIMEOUT_S) as talk:
        pid = talk.hello().pid
        assert observed(talk.prepare(), "threads") == 1
        threads = [int(folder.name) for folder in Path(f"/proc/{pid}/task").iterdir()]
        assert {cpu} == set().union(*map(os.sched_getaffinity, threads))


def test_a_step_changes_nothing_and_a_seed_does(bench: Bench):
    losses = bench.losses()
    assert len(set(losses)) == 1
    assert abs(bench.losses(seed=1)[0] - losses[0]) > 1e-4


def test_input_from_host_memory_changes_no_loss(bench: Bench):
    assert bench.losses(input="host") == pytest.approx(bench.losses(), rel=1e-6)


@pytest.mark.parametrize(
    "axes",
    [
        {"device": "gpu:0"},
        {"precision": "fp64"},
        {"precision": "bf16"},
        {"layout": "nhwc"},
        {"engine": "onednn"},
        {"isa": "avx2"},
        {"compile": "default"},
        {"algorithm": "deterministic"},
        {"dropout": "on"},
        {"input": "pinned"},
    ],
    ids=str,
)
def test_what_it_cannot_do_is_refused(bench: Bench, axes: dict[str, Value]):
    with pytest.raises(JobFailed) as refusal:
        bench.prepare(**axes)
    assert refusal.value.outcome == "unsupported"
    assert next(iter(axes)) in refusal.value.reason


def test_between_convolutions_too_it_computes_the_same():
    """There it keeps images in blocks of channels, has norms and activations within convolutions, and no single layer
    shows either. One loss for each operation would be ten sessions; what is wrong in one shows in that of all."""
    graph = between()
    samples, labels = synthetic_batch(graph, BATCH, 0)
    outputs = reference.forward_all(graph, initial_parameters(graph, 0, generic=True), samples, labels, training=False)
    plain = graph_job("onnxruntime", graph, device="auto", batch=BATCH, phase="forward")
    with talking_to_worker(replace(plain, generic_weights=True), timeout_s=TIMEOUT_S) as talk:
        talk.hello()
        talk.prepare()
        assert talk.losses(0) == pytest.approx([float(outputs["loss"].value)], rel=1e-5)
