"""What only Theano has: a compiler that must be there, and a BLAS that its compiled code must have been linked with."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from frameworks import environment_of
from msgspec.structs import replace
from tiny_jobs import machine, tiny_job

from deepstone.errors import MissingError
from deepstone.graph import reference
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.graph.weights import initial_parameters, synthetic_batch
from deepstone.models.load import LoadedModel
from deepstone.results.record import Effect
from deepstone.runner.conversation import Prepared, talking_to_worker
from deepstone.runner.job import Job
from deepstone.setups.request import complete

TIMEOUT_S = 1800.0
THREADS = 1


@functools.cache
def two_pools() -> Graph:
    b = Builder("two pools")
    x = b.relu("relu", b.conv("conv", b.input("image", (4, 11, 11)), channels=8, kernel=3, pad=1))
    x = b.max_pool("pool", b.max_pool("first pool", x, kernel=3, stride=2), kernel=3, stride=1, pad=1)
    b.softmax_cross_entropy("loss", b.dense("dense", b.flatten("flatten", x), features=10))
    return b.build()


@functools.cache
def prepared() -> Prepared:
    job = tiny_job("theano", environment=environment_of("theano"), threads=THREADS)
    with talking_to_worker(job, timeout_s=TIMEOUT_S) as talk:
        talk.hello()
        return talk.prepare()


def test_convolutions_are_matrix_products():
    """Without a BLAS or a compiler Theano would take slower ways, in silence."""
    operations = prepared().details["theano_operations"]
    assert operations["CorrMM"] == operations["CorrMM_gradWeights"] == 2
    assert operations["CorrMM_gradInputs"] == 1  # the image has no gradient
    assert not any(name.startswith(("AbstractConv", "ConvOp")) for name in operations)


def test_the_products_are_those_of_the_environments_blas():
    library = Path(prepared().details["blas"])
    assert library.is_relative_to(environment_of("theano").program.parent.parent)
    assert library.name in environment_of("theano").variables["THEANO_FLAGS"]
    assert prepared().effective["threads"] == Effect(value=THREADS, source="observed")


def test_a_pool_of_a_pool_hands_on_its_gradient_once():
    """Overlapping windows have the same largest value; Theano by itself gives each of these the whole gradient."""
    job = Job(
        model=LoadedModel(graph=two_pools(), name="two pools", source="zoo", file_sha256=""),
        request=complete({"framework": "theano", "batch": 2, "threads": THREADS, "phase": "gradient"}),
        environment=environment_of("theano"),
        machine=machine(),
        command=("deepstone", "run", "two pools"),
    )
    with talking_to_worker(job, timeout_s=TIMEOUT_S) as talk:
        talk.hello()
        talk.prepare()
        found = np.load(talk.dump("gradients")["conv/weight"])
    samples, labels = synthetic_batch(two_pools(), 2, 0)
    step = reference.step(two_pools(), initial_parameters(two_pools(), 0), samples, labels)
    right = step.parameter_gradients["conv"]["weight"]
    assert np.linalg.norm(found - right) < 1e-5 * np.linalg.norm(right)


def test_what_it_compiles_stays_in_the_environment():
    environment = environment_of("theano")
    compiled = environment.program.parent.parent.parent / "compiled"
    assert f"base_compiledir={compiled}" in environment.variables["THEANO_FLAGS"]
    assert list(compiled.glob("*/*/mod.cpp"))


def test_without_a_compiler_it_says_what_is_missing():
    environment = environment_of("theano")
    flags = environment.variables["THEANO_FLAGS"] + ",cxx="
    environment = replace(environment, variables={**environment.variables, "THEANO_FLAGS": flags})
    with talking_to_worker(tiny_job("theano", environment=environment), timeout_s=TIMEOUT_S) as talk:
        talk.hello()
        with pytest.raises(MissingError, match=r"there is no g\+\+; on Debian: apt install g\+\+"):
            talk.prepare()
