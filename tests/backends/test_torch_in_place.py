"""Stamps become accounts, and marked steps leave nothing behind."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from graph_examples import branching
from tiny_jobs import tiny

from deepstone.backends.base import Job
from deepstone.backends.torch.backend import TorchBackend
from deepstone.backends.torch.in_place import SUMS, accounts
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.graph.weights import initial_parameters, synthetic_batch
from deepstone.setups.axes import Value
from deepstone.setups.request import complete

START, DATA, FORWARD, BACKWARD, UPDATE = range(-1, 4)


@cache
def forked() -> Graph:
    """One output that feeds two layers, so that gradients meet."""
    b = Builder("forked")
    x = b.conv("conv", b.input("data", (3, 8, 8)), channels=8, kernel=3, pad=1)
    x = b.add("add", b.relu("relu", x), x)
    b.softmax_cross_entropy("loss", b.dense("dense", b.flatten("flatten", x), features=10))
    return b.build()


def built(graph: Graph, **axes: Value) -> TorchBackend:
    request = complete({"framework": "torch", "batch": 4, "threads": 1, **axes})
    samples, labels = synthetic_batch(graph, 4, 0)
    backend = TorchBackend()
    backend.build(Job(graph.to_worker_json(), initial_parameters(graph, 0), samples, labels, dict(request), ""))
    backend.first_step()
    return backend


def stamps(*entries: tuple[Any, float]) -> tuple[list[Any], list[float]]:
    what, times_s = zip(*entries, strict=True)
    return list(what), list(times_s)


def test_time_between_a_layers_stamps_is_its_own_and_the_rest_is_gaps():
    what, times_s = stamps(
        (START, 0.0),
        (DATA, 1.0),
        (("conv", "forward", True), 1.5),
        (("conv", "forward", False), 4.5),
        (FORWARD, 5.0),
        (("conv", "backward", True), 5.25),
        (("conv", "backward", False), 11.25),
        (BACKWARD, 11.5),
        (UPDATE, 13.5),
    )
    (found,) = accounts(what, times_s, forked())
    assert found.layers == {("conv", "forward"): 3.0, ("conv", "backward"): 6.0}
    assert (found.data_s, found.update_s, found.gaps_s, found.total_s) == (1.0, 2.0, 1.5, 13.5)
    assert found.other == {}


def test_without_stamps_where_layers_begin_each_has_the_time_since_the_last():
    what, times_s = stamps(
        (START, 0.0), (DATA, 0.5), (("conv", "forward", False), 2.5), (("relu", "forward", False), 3.5), (FORWARD, 4.0)
    )
    (found,) = accounts(what, times_s, forked())
    assert found.layers == {("conv", "forward"): 2.0, ("relu", "forward"): 1.0}
    assert found.gaps_s == 0.5


def test_gradients_that_meet_are_added_up_after_the_second():
    backward = [("add", 0.0), ("relu", 2.0)]
    entries: list[tuple[Any, float]] = [(START, -2.0), (DATA, -1.0), (FORWARD, -0.5)]
    for name, begin_s in backward:
        entries += [((name, "backward", True), begin_s), ((name, "backward", False), begin_s + 1.0)]
    entries += [(("conv", "backward", True), 3.25), (("conv", "backward", False), 4.0), (BACKWARD, 4.0), (UPDATE, 4.0)]
    (found,) = accounts(*stamps(*entries), forked())
    assert found.other == {SUMS: 0.25}  # between the end of relu and conv; add came first and met nothing
    assert found.gaps_s == pytest.approx(0.5 + 0.5 + 1.0)


def test_steps_are_told_apart():
    what, times_s = stamps((START, 0.0), (DATA, 1.0), (FORWARD, 2.0), (START, 2.0), (DATA, 5.0), (FORWARD, 6.0))
    assert [found.total_s for found in accounts(what, times_s, forked())] == [2.0, 4.0]


def test_a_real_step_names_its_sums():
    found = built(forked()).in_place(2)
    for step in found.steps:
        assert step.other[SUMS] > 0
        assert set(step.layers) == {
            (layer.name, direction) for layer in forked().layers[1:] for direction in ("forward", "backward")
        }


@pytest.mark.parametrize("graph", [tiny(), forked(), branching()], ids=lambda graph: graph.name)
def test_stamped_steps_leave_no_timestamps_behind(graph: Graph):
    backend = built(graph)
    backend.in_place(3)
    timer = backend._in_place
    assert timer is not None
    for _ in range(2):
        backend.step("train")()
    assert timer._stamped.timestamps.what == []


@pytest.mark.parametrize("phase", ["forward", "gradient", "train"])
def test_marked_steps_compute_what_plain_ones_do(phase: str):
    plain, marked = built(branching(), phase=phase), built(branching(), phase=phase)
    for _ in range(4):
        plain.step(phase)()
    marked.in_place(3)  # one more runs first
    assert marked.loss() == pytest.approx(plain.loss(), rel=1e-6)


def test_with_checkpointing_it_is_refused_with_the_reason():
    backend = built(branching(), checkpointing="on")
    with pytest.raises(Exception, match="checkpointing=off"):
        backend.in_place(1)
