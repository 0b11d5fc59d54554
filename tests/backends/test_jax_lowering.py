"""The JAX lowering computes what the float64 reference computes: layer by layer and in whole steps, however it is run.

A worker takes seconds to start, so each way of running has one, and every layer is asked of it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from graph_examples import branching, normed_chain
from shared_workers import shared_worker
from single_layers import LayerSuite, awkward, graph_job
from step_checks import assert_step_agrees, assert_step_is_near, assert_updates_agree

import deepstone
from deepstone.environments.find import find_environment
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.graph.segments import chain, possible_cuts
from deepstone.models.zoo import ZOO
from deepstone.runner.conversation import Conversation
from deepstone.setups.axes import Value

pytestmark = pytest.mark.usefixtures("unoptimized_xla")
TIMEOUT_S = 1800.0


# A layer takes half a second to compile, so here are more layers than in test_contract_sameness.py but fewer ways.
WAYS: dict[str, dict[str, Value]] = {
    "fp32": {"phase": "gradient"},
    "fp64-nchw": {"phase": "gradient", "precision": "fp64", "layout": "nchw"},
}


@contextmanager
def worker(**axes: Value) -> Iterator[Conversation]:
    with shared_worker(graph_job("jax", normed_chain(5), **axes), timeout_s=TIMEOUT_S) as talk:
        talk.hello()
        yield talk


@pytest.fixture(scope="module")
def talk() -> Iterator[Conversation]:
    """One worker that is given graph after graph."""
    with worker() as talk:
        yield talk


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[tuple[Conversation, dict[str, Value]]]:
    """A worker whose job is the graph of awkward layers; its own step is not run: that takes long to compile."""
    axes = WAYS[request.param]
    with worker(**axes) as talk:
        talk._job = graph_job("jax", awkward(), **axes)
        talk.build()
        yield talk, axes


@pytest.mark.deep  # test_contract_sameness.py has every operation
@pytest.mark.slow
class TestLayers(LayerSuite):
    pass


class TestWholeSteps:
    @pytest.mark.parametrize("layout", ["nhwc", "nchw"])
    def test_branches_joins_and_weighted_losses_agree(self, talk: Conversation, layout: str) -> None:
        assert_step_agrees(talk, "jax", branching(), layout=layout)

    @pytest.mark.deep  # test_contract_sameness.py has it in whole steps
    def test_every_awkward_layer_at_once_agrees(self, talk: Conversation) -> None:
        assert_step_agrees(talk, "jax", awkward())

    @pytest.mark.parametrize("layout", ["nhwc", "nchw"])
    def test_a_strided_convolution_over_blocks_agrees(self, talk: Conversation, layout: str) -> None:
        assert_step_agrees(talk, "jax", strided(), layout=layout, space_to_depth="on")

    def test_a_batch_of_one_agrees(self, talk: Conversation) -> None:
        assert_step_agrees(talk, "jax", branching(), batch=1)

    def test_checkpointed_it_agrees_and_learns_once(self, talk: Conversation) -> None:
        assert_step_agrees(talk, "jax", normed_chain(5), checkpointing="on")

    def test_three_updates_agree(self, talk: Conversation) -> None:
        assert_updates_agree(talk, "jax", branching(), 3)

    def test_in_single_precision_it_stays_near(self, talk: Conversation) -> None:
        assert_step_is_near(talk, "jax", branching())


STATISTICS = """
import jax
import jax.numpy as jnp
import numpy as np
from deepstone.backends.jax.norms import _in_one_pass
from deepstone.backends.jax.settings import NCHW, NHWC

draws = np.random.RandomState(0).normal(size=(4, 9, 7, 5)).astype(np.float32)
for images in (draws, 1000 + draws, np.full_like(draws, 3.5)):
    wide = images.astype(np.float64)
    for order, x in ((NHWC, images), (NCHW, images.transpose(0, 3, 1, 2))):
        mean, variance = jax.jit(_in_one_pass, static_argnums=1)(jnp.asarray(x), order)
        assert np.allclose(mean, wide.mean((0, 1, 2)), rtol=1e-5, atol=1e-5)
        assert np.allclose(variance, wide.var((0, 1, 2)), rtol=1e-4, atol=1e-6), (mean, variance)
"""


def test_statistics_in_one_pass_lose_no_digits_to_a_large_mean() -> None:
    """They are what a GPU computes; a CPU can compute them too."""
    python = find_environment("jax").program
    variables = {**os.environ, "PYTHONPATH": str(Path(deepstone.__file__).parents[1]), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([str(python), "-c", STATISTICS], env=variables, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


class TestChains:
    """Graphs of more than a thousand layers are run as a chain of programs, of which equal segments share one."""

    @pytest.mark.deep  # the next one computes it from the same programs
    def test_the_gradient_agrees(self, talk: Conversation) -> None:
        assert_step_agrees(talk, "jax", deep())

    def test_checkpointed_it_agrees(self, talk: Conversation) -> None:
        assert_step_agrees(talk, "jax", deep(), checkpointing="on")

    def test_updates_agree(self, talk: Conversation) -> None:
        assert_updates_agree(talk, "jax", deep(), 2)

    def test_few_programs_do_for_all(self, talk: Conversation) -> None:
        talk._job = graph_job("jax", deep(), phase="forward")
        assert 2 <= talk.prepare().details["programs"] <= 6 < len(chain(deep(), 50))

    def test_every_layer_of_a_graph_is_in_its_chain_once(self) -> None:
        for graph in (deep(), branching(), ZOO["googlenet"].make()):
            links = chain(graph, 50)
            assert [layer for link in links for layer in link] == list(graph.layers)
            ends = {sum(map(len, links[:number])) - 1 for number in range(1, len(links))}
            assert ends <= possible_cuts(graph)
            assert all(links)


def strided() -> Graph:
    b = Builder("strided")
    x = b.conv("conv1", b.input("data", (3, 14, 11)), channels=4, kernel=(5, 4), stride=2, pad=(2, 1, 1, 2))
    x = b.relu("relu1", b.batch_norm("norm1", x))
    b.softmax_cross_entropy("loss", b.dense("after", b.flatten("flat", x), features=5))
    return b.build()


def deep() -> Graph:
    """Small residual blocks, so many that no step is one program."""
    b = Builder("deep")
    x = b.conv("first", b.input("data", (3, 4, 4)), channels=4, kernel=3, pad=1)
    for number in range(210):
        y = b.relu(f"relu{number}", b.batch_norm(f"norm{number}", x))
        y = b.conv(f"conv{number}", y, channels=4, kernel=3, pad=1)
        x = b.add(f"sum{number}", b.average_pool(f"pool{number}", y, kernel=3, stride=1, pad=1), x)
    b.softmax_cross_entropy("loss", b.dense("dense", b.flatten("flat", x), features=5))
    assert len(b.build()) > 1000
    return b.build()
