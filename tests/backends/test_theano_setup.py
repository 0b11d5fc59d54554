"""What only Theano has: a compiler that must be there, and a BLAS that its compiled code must have been linked with."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest
from frameworks import environment_of
from tiny_jobs import tiny_job

from deepstone.errors import MissingError
from deepstone.runner.conversation import Prepared, talking_to_worker

TIMEOUT_S = 280.0
THREADS = 1


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
    assert library.is_relative_to(environment_of("theano").python.parent.parent)
    assert library.name in environment_of("theano").variables["THEANO_FLAGS"]
    assert prepared().effective["threads"] == {"value": THREADS, "source": "observed"}


def test_what_it_compiles_stays_in_the_environment():
    environment = environment_of("theano")
    compiled = environment.python.parent.parent.parent / "compiled"
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
