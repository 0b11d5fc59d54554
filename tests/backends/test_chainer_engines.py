"""Chainer with iDeep and without: MKL-DNN is seen to run where it is there, and refused where it is not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from frameworks import environment_of
from shared_workers import shared_worker
from tiny_jobs import tiny_job
from workbench import Bench, observed

from deepstone.runner.conversation import JobFailed
from deepstone.runner.job import Job
from deepstone.setups.axes import Value

TIMEOUT_S = 1800.0
ON_IDEEP = "chainer@7.8.1-ideep"
ON_NUMPY = "chainer"


def job(framework: str, **axes: Value) -> Job:
    asked: dict[str, Value] = {"threads": 1, **axes}
    return tiny_job(framework, environment=environment_of(framework), **asked)


@pytest.fixture(scope="module")
def ideep() -> Iterator[Bench]:
    with shared_worker(job(ON_IDEEP), timeout_s=TIMEOUT_S) as talk:
        yield Bench(talk, partial(job, ON_IDEEP))


def test_mkl_dnn_is_heard_at_work(ideep: Bench):
    prepared = ideep.prepare()
    assert ideep.hello.framework["ideep4py"] == "2.0.0.post3"
    assert observed(prepared, "engine") == "onednn"
    assert str(observed(prepared, "isa")).startswith(("sse", "avx"))
    assert observed(prepared, "threads") == 1
    assert {"convolution", "batch_normalization", "eltwise"} <= set(prepared.details["onednn_primitives"])


def test_without_it_numpy_computes_the_same(ideep: Bench):
    """Not to the last bit, or it would be the same engine under another name."""
    own = ideep.losses(engine="onednn")
    prepared = ideep.prepare(engine="native")
    assert prepared.effective["engine"].value == "native"
    assert prepared.details["onednn_primitives"] == {}
    numpy = ideep.losses(engine="native")
    assert own != numpy
    assert np.allclose(own, numpy, rtol=1e-4)


def test_double_precision_is_numpy_s(ideep: Bench):
    assert ideep.prepare(precision="fp64").effective["engine"].value == "native"
    with pytest.raises(JobFailed, match=r"engine=onednn \(it takes auto or native\)") as refusal:
        ideep.prepare(precision="fp64", engine="onednn")
    assert refusal.value.outcome == "unsupported"


def test_without_ideep_there_is_no_mkl_dnn():
    with (
        shared_worker(job(ON_NUMPY), timeout_s=TIMEOUT_S) as talk,
        pytest.raises(JobFailed, match=r"engine=onednn \(it takes auto or native\)") as refusal,
    ):
        Bench(talk, partial(job, ON_NUMPY)).prepare(engine="onednn")
    assert refusal.value.outcome == "unsupported"
