"""Whole steps of a real worker against the float64 reference, for frameworks that live in another interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from shared_workers import shared_worker
from single_layers import BATCH, graph_job

from deepstone.graph import reference
from deepstone.graph.graph import Graph
from deepstone.graph.weights import initial_parameters, synthetic_batch
from deepstone.runner.conversation import Conversation
from deepstone.runner.job import Job
from deepstone.setups.axes import Value


def assert_step_agrees(talk: Conversation, framework: str, graph: Graph, **axes: Value) -> None:
    """Loss, gradients and running statistics of a first step in double precision."""
    talk._job = graph_job(framework, graph, **{"phase": "gradient", "precision": "fp64", **axes})
    talk.prepare()
    samples, labels = synthetic_batch(graph, int(axes.get("batch", BATCH)), 0)
    expected = reference.step(graph, initial_parameters(graph, 0), samples, labels)
    assert talk.losses(0)[0] == pytest.approx(expected.loss, rel=1e-9)
    gradients = dumped(talk, "gradients")
    assert list(gradients) == [f"{layer.name}/{name}" for layer in graph.layers for name in graph.parameters(layer)]
    largest = max(np.linalg.norm(array) for held in expected.parameter_gradients.values() for array in held.values())
    assert_all_near(gradients, expected.parameter_gradients, 1e-9, floor=1e-6 * largest)
    assert_all_near(dumped(talk, "buffers"), expected.buffers, 1e-9)


def assert_updates_agree(talk: Conversation, framework: str, graph: Graph, updates: int, **axes: Value) -> None:
    """Losses, weights and running statistics over several updates with momentum in double precision."""
    talk._job = graph_job(framework, graph, **{"phase": "train", "precision": "fp64", **axes})
    talk.prepare()
    losses = talk.losses(0) + talk.losses(updates - 1)
    samples, labels = synthetic_batch(graph, BATCH, 0)
    parameters: Any = initial_parameters(graph, 0)
    velocities = buffers = None
    for loss in losses:
        done = reference.step(graph, parameters, samples, labels, buffers=buffers)
        assert loss == pytest.approx(done.loss, rel=1e-9)
        parameters, velocities = reference.sgd_momentum_update(parameters, done.parameter_gradients, velocities)
        buffers = done.buffers
    assert_all_near(dumped(talk, "parameters"), parameters, 1e-12)
    assert_all_near(dumped(talk, "buffers"), buffers, 1e-9)


def assert_step_is_near(talk: Conversation, framework: str, graph: Graph) -> None:
    """Loss and gradients of a first step in single precision."""
    talk._job = graph_job(framework, graph, phase="gradient")
    talk.prepare()
    samples, labels = synthetic_batch(graph, BATCH, 0)
    expected = reference.step(graph, initial_parameters(graph, 0), samples, labels)
    assert talk.losses(0)[0] == pytest.approx(expected.loss, rel=1e-5)
    for name, gradient in dumped(talk, "gradients").items():
        layer, _, parameter = name.rpartition("/")
        wanted = expected.parameter_gradients[layer][parameter]
        assert gradient.dtype == np.float32
        assert np.linalg.norm(gradient - wanted) < 1e-4 * np.linalg.norm(wanted), name


def assert_dropout_scales_what_it_keeps(job: Job, timeout_s: float) -> None:
    """Of the tiny network with dropout=on."""
    with shared_worker(job, timeout_s=timeout_s) as talk:
        talk.hello()
        talk.prepare(job)
        ones = np.ones((8, 32), np.float32)
        dropped = talk.layer("drop", {"flatten": ones}, ones)
    assert set(np.unique(dropped["output", ""])) == {0.0, 2.0}
    np.testing.assert_array_equal(dropped["output", ""], dropped["input", "flatten"])


def dumped(talk: Conversation, kind: str) -> dict[str, Any]:
    return {name: np.load(path) for name, path in talk.dump(kind).items()}


def assert_all_near(given: dict[str, Any], wanted: Any, tolerance: float, floor: float = 0.0) -> None:
    for name, array in given.items():
        layer, _, kind = name.rpartition("/")
        assert array.dtype == np.float64, name
        assert array.shape == wanted[layer][kind].shape, name
        scale = max(np.linalg.norm(wanted[layer][kind]), floor)
        assert np.linalg.norm(array - wanted[layer][kind]) <= tolerance * scale, name
