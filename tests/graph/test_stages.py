"""Stages of a pipeline: in order, balanced, and everything that a later stage reads is passed on."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.graph.stages import Stage, analytic_costs, most_stages, stages_of
from deepstone.models.zoo import make


def two_losses() -> Graph:
    b = Builder("two losses")
    x = b.conv("conv1", b.input("data", (3, 8, 8)), channels=4, kernel=3, pad=1)
    b.softmax_cross_entropy("loss1", b.dense("dense1", b.flatten("flat1", x), features=10), weight=0.3)
    x = b.add("add", b.conv("conv2", x, channels=4, kernel=3, pad=1), x)
    b.softmax_cross_entropy("loss2", b.dense("dense2", b.flatten("flat2", x), features=10))
    return b.build()


def check(graph: Graph, stages: list[Stage]) -> None:
    assert [layer for stage in stages for layer in stage.layers] == list(graph.layers)
    assert sum(stage.share for stage in stages) == pytest.approx(1)
    assert all(any(layer.op.kind != "input" for layer in stage.layers) for stage in stages)
    assert (stages[0].takes, stages[-1].gives) == ((), ())
    assert not stages[0].takes_loss
    assert not stages[-1].gives_loss
    for stage, after in pairwise(stages):
        assert (stage.gives, stage.gives_loss) == (after.takes, after.takes_loss)
    for stage in stages:
        has = {*stage.takes, *(layer.name for layer in stage.layers)}
        assert set(stage.gives) <= has
        assert all(set(layer.inputs) <= has for layer in stage.layers)


@pytest.mark.parametrize("name", ["cifarnet", "alexnet-owt", "googlenet", "resnet50"])
@pytest.mark.parametrize("count", [2, 4, 8])
def test_stages_of_the_zoo(name: str, count: int):
    graph = make(name)
    stages = stages_of(graph, count, analytic_costs(graph))
    assert len(stages) == count
    check(graph, stages)


def test_a_cut_passes_on_little_where_it_can():
    """Blocks of resnet50 are joined by one array each; balance allows to cut there."""
    graph = make("resnet50")
    assert [len(stage.takes) for stage in stages_of(graph, 2, analytic_costs(graph))] == [0, 1]


def test_a_loss_before_a_cut_crosses_it():
    graph = two_losses()
    stages = stages_of(graph, most_stages(graph), [1.0] * len(graph))
    check(graph, stages)
    names = {stage.layers[-1].name: stage for stage in stages}
    assert names["loss1"].gives_loss
    assert not names["flat1"].gives_loss
    assert names["loss2"].takes_loss
    assert names["conv2"].gives == ("conv1", "conv2")  # the skip too


@given(st.integers(2, 7), st.data())
def test_the_most_expensive_stage_is_as_cheap_as_it_can_be(count: int, data: st.DataObject):
    graph = two_losses()
    costs = data.draw(st.lists(st.floats(0.0, 10.0), min_size=len(graph), max_size=len(graph)))
    stages = stages_of(graph, count, costs)
    check_costs = [sum(costs[graph.layers.index(layer)] for layer in stage.layers) for stage in stages]
    assert len(stages) == count
    assert max(check_costs) <= 1.06 * best(costs, count) + 1e-9


def best(costs: list[float], count: int) -> float:
    """By trying all cuts; the input is never by itself."""
    if count == 1:
        return sum(costs)
    ends = range(2, len(costs) - count + 2)
    return min(max(sum(costs[:end]), rest(costs[end:], count - 1)) for end in ends)


def rest(costs: list[float], count: int) -> float:
    if count == 1:
        return sum(costs)
    return min(max(sum(costs[:end]), rest(costs[end:], count - 1)) for end in range(1, len(costs) - count + 2))


def test_very_deep_networks_are_cut_quickly():
    graph = make("resnet1001")
    begin_s = time.process_time()
    stages = stages_of(graph, 8, analytic_costs(graph))
    assert time.process_time() - begin_s < 2
    assert max(stage.share for stage in stages) < 1.1 / 8
