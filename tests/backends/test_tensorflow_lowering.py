"""The TensorFlow lowering computes what the float64 reference computes: layer by layer and in whole steps, however run.

A worker takes seconds to start, so each way of running has one, and every layer is asked of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from graph_examples import branching, normed_chain
from shared_workers import shared_worker
from single_layers import BATCH, LayerSuite, awkward, graph_job
from step_checks import assert_all_near, assert_step_agrees, assert_step_is_near, assert_updates_agree, dumped

from deepstone.graph import reference
from deepstone.graph.weights import initial_parameters, synthetic_batch
from deepstone.runner.conversation import Conversation
from deepstone.setups.axes import Value

pytestmark = pytest.mark.usefixtures("unoptimized_xla")
TIMEOUT_S = 1800.0


@contextmanager
def worker(**axes: Value) -> Iterator[Conversation]:
    with shared_worker(graph_job("tensorflow", awkward(), **axes), timeout_s=TIMEOUT_S) as talk:
        talk.hello()
        yield talk


# More layers than in test_contract_sameness.py, which has more ways to run them.
WAYS: dict[str, dict[str, Value]] = {
    "plain": {"phase": "gradient"},
    "fp64": {"phase": "gradient", "precision": "fp64"},
    "eager": {"phase": "gradient", "compile": "off"},
    "nchw": {"phase": "gradient", "layout": "nchw"},
    "xla-fp64-nchw": {"phase": "gradient", "engine": "xla", "precision": "fp64", "layout": "nchw"},
}

# In the first XLA compiles every layer by itself. Of the second test_contract_sameness.py has every operation.
DEEP = {"xla-fp64-nchw", "plain"}


@pytest.fixture(scope="module")
def talk() -> Iterator[Conversation]:
    """One worker that is given graph after graph."""
    with worker() as talk:
        yield talk


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow, pytest.mark.deep] * (name in DEEP)) for name in WAYS],
)
def way(request: pytest.FixtureRequest) -> Iterator[tuple[Conversation, dict[str, Value]]]:
    axes = WAYS[request.param]
    with worker(**axes) as talk:
        talk.prepare()
        yield talk, axes


class TestLayers(LayerSuite):
    pass


class TestWholeSteps:
    def test_branches_joins_and_weighted_losses_agree(self, talk: Conversation) -> None:
        assert_step_agrees(talk, "tensorflow", branching())

    def test_every_awkward_layer_at_once_agrees(self, talk: Conversation) -> None:
        assert_step_agrees(talk, "tensorflow", awkward())

    def test_a_batch_of_one_agrees(self, talk: Conversation) -> None:
        assert_step_agrees(talk, "tensorflow", branching(), batch=1)

    def test_eagerly_it_agrees(self, talk: Conversation) -> None:
        assert_step_agrees(talk, "tensorflow", branching(), compile="off")

    @pytest.mark.parametrize("layout", ["nhwc", "nchw"])
    def test_compiled_by_xla_it_agrees(self, talk: Conversation, layout: str) -> None:
        assert_step_agrees(talk, "tensorflow", branching(), engine="xla", layout=layout)

    @pytest.mark.parametrize("compile_mode", ["auto", "off"])
    def test_checkpointed_it_agrees_and_learns_once(self, talk: Conversation, compile_mode: str) -> None:
        assert_step_agrees(talk, "tensorflow", normed_chain(12), checkpointing="on", compile=compile_mode)

    def test_three_updates_agree(self, talk: Conversation) -> None:
        assert_updates_agree(talk, "tensorflow", branching(), updates=3)

    def test_three_updates_of_adam_agree_with_the_formula(self, talk: Conversation) -> None:
        graph = branching()
        talk._job = graph_job("tensorflow", graph, phase="train", precision="fp64", optimizer="adam")
        talk.prepare()
        talk.losses(2)
        samples, labels = synthetic_batch(graph, BATCH, 0)
        parameters: Any = {
            layer: {name: np.asarray(array, np.float64) for name, array in held.items()}
            for layer, held in initial_parameters(graph, 0).items()
        }
        first: dict[tuple[str, str], Any] = {}
        second: dict[tuple[str, str], Any] = {}
        for number in (1, 2, 3):
            gradients = reference.step(graph, parameters, samples, labels).parameter_gradients
            for layer, held in parameters.items():
                for name in held:
                    key, gradient = (layer, name), gradients[layer][name]
                    first[key] = 0.9 * first.get(key, 0.0) + 0.1 * gradient
                    second[key] = 0.999 * second.get(key, 0.0) + 0.001 * gradient**2
                    mean, square = first[key] / (1 - 0.9**number), second[key] / (1 - 0.999**number)
                    held[name] = held[name] - 1e-4 * mean / (np.sqrt(square) + 1e-8)
        assert_all_near(dumped(talk, "parameters"), parameters, 1e-9)

    def test_the_step_as_it_is_stays_near(self, talk: Conversation) -> None:
        assert_step_is_near(talk, "tensorflow", branching())
