"""Neon: what is wrong in it, and how its backend gets around that; and the MKL that it was built with."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from frameworks import environment_of
from msgspec.structs import replace
from shared_workers import shared_worker
from single_layers import BATCH, graph_job
from step_checks import assert_dropout_scales_what_it_keeps, dumped
from tiny_jobs import tiny_job

from deepstone.graph import reference
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.graph.weights import initial_parameters, synthetic_batch
from deepstone.runner.conversation import JobFailed, talking_to_worker

TIMEOUT_S = 1800.0
TOLERANCE = 1e-5

every_engine = pytest.mark.parametrize("engine", ["native", "mkl"])


def sums_of_biased() -> Graph:
    """Neon's own sum of branches leaves out the bias of a convolution that ends one."""
    b = Builder("sums of biased")
    image = b.input("image", (4, 9, 12))
    left, right = b.conv("left", image, channels=5, kernel=3), b.conv("right", image, channels=5, kernel=3)
    return ended(b, b.add("sum", left, right, left))


def shared_errors() -> Graph:
    """The gradient of a sum goes to layers that write over what they are given, and to one that reads it later."""
    b = Builder("shared errors")
    image = b.input("image", (16, 8, 8))
    middle = b.conv("middle", image, channels=16, kernel=3, pad=1)
    left = b.relu("left relu", b.conv("left", image, channels=16, kernel=3, pad=1))
    right = b.relu("right relu", b.conv("right", image, channels=16, kernel=3, pad=1))
    return ended(b, b.add("sum", left, middle, right))


def plain_errors() -> Graph:
    """The gradient comes from a layer that MKL does not have; then its sums for the bias are wrong."""
    b = Builder("plain errors")
    x = b.conv("conv", b.input("image", (3, 32, 32)), channels=32, kernel=5, pad=2)
    return ended(b, b.max_pool("pool", b.lrn("norm", x, alpha=1.0), kernel=3, stride=2))


def dilated_first() -> Graph:
    """With MKL, Neon crashes where a dilated convolution has no gradient of its image to compute."""
    b = Builder("dilated first")
    x = b.conv("dilated", b.input("image", (8, 12, 12)), channels=8, kernel=3, pad=2, dilation=2)
    return ended(b, b.conv("next", x, channels=8, kernel=3, dilation=(1, 2)))


def wide_pool() -> Graph:
    """Neon keeps the place of a maximum in a byte."""
    b = Builder("wide pool")
    x = b.conv("conv", b.input("image", (2, 24, 24)), channels=8, kernel=3, pad=1)
    return ended(b, b.max_pool("pool", x, kernel=20, stride=2))


def odd_joins() -> Graph:
    """Channels that do not fill MKL's blocks, and parts in different layouts."""
    b = Builder("odd joins")
    image = b.input("image", (3, 10, 10))
    x = b.relu("relu", b.conv("conv", image, channels=20, kernel=3, pad=1))
    parts = [b.conv("narrow", x, channels=5, kernel=1), b.lrn("norm", x), b.conv("wide", x, channels=32, kernel=1)]
    return ended(b, b.relu("after", b.concat("join", *parts, image)))


def ended(b: Builder, end: str) -> Graph:
    scores = b.dense("scores", b.flatten("flat", end), features=7)
    b.softmax_cross_entropy("loss", scores)
    return b.build()


GRAPHS = {
    make.__name__: make for make in (sums_of_biased, shared_errors, plain_errors, dilated_first, wide_pool, odd_joins)
}


@functools.cache
def expected(name: str) -> dict[str, np.ndarray]:
    graph = GRAPHS[name]()
    samples, labels = synthetic_batch(graph, BATCH, 0)
    step = reference.step(graph, initial_parameters(graph, 0, generic=True), samples, labels)
    return {f"{layer}/{kind}": a for layer, arrays in step.parameter_gradients.items() for kind, a in arrays.items()}


@every_engine
@pytest.mark.parametrize("graph", GRAPHS)
def test_what_is_wrong_in_neon_is_got_around(graph: str, engine: str) -> None:
    """Twice: MKL decides on layouts in the first step."""
    job = replace(graph_job("neon", GRAPHS[graph](), phase="gradient", engine=engine), generic_weights=True)
    with shared_worker(job, timeout_s=TIMEOUT_S) as talk:
        talk.hello()
        assert talk.prepare().effective["engine"].value == engine
        for _ in range(2):
            for name, gradient in dumped(talk, "gradients").items():
                right = expected(graph)[name]
                assert np.linalg.norm(gradient - right) < TOLERANCE * np.linalg.norm(right), name
            talk.losses(1)


@every_engine
def test_dropout_scales_what_it_keeps(engine: str) -> None:
    job = tiny_job("neon", environment=environment_of("neon"), threads=1, dropout="on", engine=engine)
    assert_dropout_scales_what_it_keeps(job, TIMEOUT_S)


# An MKL whose convolutions compute nothing, as that of 2018.0.0 does on a CPU that is not Intel's.
PLANTED = """
import sys

class Finder:
    def find_module(self, name, path=None):
        return self if name == "neon.backends.layer_mkl" else None

    def load_module(self, name):
        sys.meta_path.remove(self)
        import importlib
        module = importlib.import_module(name)
        module.ConvLayerMKL.update_conv = lambda self, *given, **named: None
        return module

sys.meta_path.insert(0, Finder())
"""


@pytest.fixture
def with_a_wrong_mkl(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "sitecustomize.py").write_text(PLANTED)
    return {"PYTHONPATH": str(tmp_path)}


def test_an_mkl_that_computes_wrong_numbers_is_not_used(with_a_wrong_mkl: dict[str, str]) -> None:
    environment = environment_of("neon")
    environment = replace(environment, variables={**environment.variables, **with_a_wrong_mkl})
    with talking_to_worker(tiny_job("neon", environment=environment), timeout_s=TIMEOUT_S) as talk:
        talk.hello()
        assert talk.prepare().effective["engine"].value == "native"
        with pytest.raises(JobFailed, match="computes wrong numbers on this CPU") as refusal:
            talk.prepare(tiny_job("neon", environment=environment, engine="mkl"))
        assert refusal.value.outcome == "unsupported"


def test_mkl_has_no_double_precision() -> None:
    job = tiny_job("neon", environment=environment_of("neon"), threads=1, precision="fp64", engine="mkl")
    with shared_worker(job, timeout_s=TIMEOUT_S) as talk:
        talk.hello()
        with pytest.raises(JobFailed, match=r"engine=mkl \(it takes auto or native\)"):
            talk.prepare(job)
