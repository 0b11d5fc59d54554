"""Torch7: the BLAS that it was linked with, and the known quirks of nn."""

from __future__ import annotations

import os

import pytest
from frameworks import environment_of
from msgspec.structs import replace
from shared_workers import shared_worker
from single_layers import graph_job
from step_checks import assert_dropout_scales_what_it_keeps, assert_step_agrees, assert_updates_agree
from tiny_jobs import tiny_job

from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.runner.conversation import talking_to_worker

TIMEOUT_S = 1800.0


def shared_outputs() -> Graph:
    """Relus that may not work in place: their input is read by others, or its own layer reads it in backward."""
    b = Builder("shared outputs")
    x = b.conv("conv", b.input("image", (4, 9, 12)), channels=6, kernel=3)
    norm = b.lrn("norm", x, size=3, alpha=1.0)
    both = b.add("both", b.relu("of conv", x), b.relu("of norm", norm), x, x)
    scores = b.dense("scores", b.flatten("flat", b.relu("of both", both)), features=7)
    b.softmax_cross_entropy("loss", scores, weight=0.5)
    b.softmax_cross_entropy("again", scores)
    return b.build()


def in_groups() -> Graph:
    b = Builder("in groups")
    x = b.conv("conv", b.input("image", (6, 9, 12)), channels=12, kernel=3, pad=(0, 1, 2, 1), groups=3)
    x = b.conv("next", x, channels=8, kernel=3, groups=2, dilation=2, bias=False)
    b.softmax_cross_entropy("loss", b.dense("scores", b.flatten("flat", x), features=7))
    return b.build()


@pytest.mark.parametrize("make", [shared_outputs, in_groups])
def test_a_step_and_its_updates(make: object) -> None:
    graph = shared_outputs() if make is shared_outputs else in_groups()
    with shared_worker(graph_job("torch7", graph), timeout_s=TIMEOUT_S) as talk:
        talk.hello()
        assert_step_agrees(talk, "torch7", graph)
        assert_updates_agree(talk, "torch7", graph, 3)


def test_a_batch_of_one() -> None:
    """nn's own cross-entropy squeezes its input, and takes one sample for none."""
    graph = in_groups()
    with shared_worker(graph_job("torch7", graph), timeout_s=TIMEOUT_S) as talk:
        talk.hello()
        assert_step_agrees(talk, "torch7", graph, batch=1)


def test_dropout_scales_what_it_keeps() -> None:
    job = tiny_job("torch7", environment=environment_of("torch7"), threads=1, dropout="on")
    assert_dropout_scales_what_it_keeps(job, TIMEOUT_S)


def test_its_blas_is_told_and_its_threads_are_read_back() -> None:
    """Torch7 sets the threads of its own kernels; those of an OpenBLAS on pthreads it does not control."""
    environment, most = environment_of("torch7"), len(os.sched_getaffinity(0))
    with talking_to_worker(tiny_job("torch7", environment=environment, threads=most), timeout_s=TIMEOUT_S) as talk:
        assert talk.hello().framework["blas"]
        effective = talk.prepare().effective["threads"]
    assert (effective.value, effective.source) == (most, "observed")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one CPU only")
def test_a_blas_that_takes_other_threads_is_noticed() -> None:
    """As if the BLAS did not listen to the variables that are set for it."""
    environment = environment_of("torch7")
    job = tiny_job("torch7", environment=environment, threads=1)
    with talking_to_worker(replace(job, request={**job.request, "threads": "auto"}), timeout_s=TIMEOUT_S) as talk:
        hello = talk.hello()
        if "openblas" not in hello.framework:
            pytest.skip("its BLAS does not tell its threads")
        found = str(talk.prepare(job).effective["threads"].value)
    if "OPENMP" in str(hello.framework["openblas"]):
        assert found == "1"  # it shares the threads that Torch7 sets
    else:
        assert found.startswith("1 and ")
        assert found.endswith(" in the BLAS")
