"""The memory that each process of a job needs, as the graph tells it before anything runs."""

from __future__ import annotations

import pytest
from fake_jobs import fake_job
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.models.load import LoadedModel
from deepstone.models.resnet import resnet110
from deepstone.runner.job import Job
from deepstone.runner.rank_memory import planned_bytes
from deepstone.setups.axes import Value


def deep_job(**axes: Value) -> Job:
    graph = resnet110()
    loaded = LoadedModel(graph=graph, name=graph.name, source="zoo", file_sha256="")
    return replace(fake_job(**{"batch": 16, **axes}), model=loaded)


def needs(**axes: Value) -> list[int]:
    found = planned_bytes(deep_job(**axes))
    return [need for need in found if not isinstance(need, Absent)]


def test_more_stages_need_less_each():
    """With one microbatch. With as many as there are stages, the first stage keeps one for each of them."""
    most = [max(needs(scheme="pipeline", processes=count, microbatches=1)) for count in (2, 4, 8)]
    assert most == sorted(most, reverse=True)
    assert most[0] > 3 * most[2]


def test_the_stages_of_one_microbatch_hold_the_network_once():
    """Parameters, gradients, momentum and activations are each in one stage; what crosses cuts comes on top."""
    whole = deep_job().need_bytes
    assert not isinstance(whole, Absent)
    in_stages = sum(needs(scheme="pipeline", processes=4, microbatches=1))
    assert whole < in_stages < 1.5 * whole


def test_a_gradient_is_there_twice_until_it_is_added_to_that_of_other_microbatches():
    """With GPipe all activations are kept, of however many microbatches, so nothing else differs."""
    asked: dict[str, Value] = {"scheme": "pipeline", "processes": 2, "schedule": "gpipe"}
    one, two, four = (needs(**asked, microbatches=count) for count in (1, 2, 4))
    largest = max(layer.gradients_bytes for layer in deep_job().memory_of(1).layers)
    assert max(b - a for a, b in zip(one, two, strict=True)) == largest > 0
    assert two == four
    hybrid: dict[str, Value] = {**asked, "scheme": "hybrid", "processes": 4, "pipeline": 2}  # has a buffer for its sum
    assert needs(**hybrid, microbatches=1) == needs(**hybrid, microbatches=2)


def test_one_forward_one_backward_keeps_fewer_activations():
    asked: dict[str, Value] = {"scheme": "pipeline", "processes": 2, "microbatches": 8}
    assert max(needs(**asked, schedule="1f1b")) < max(needs(**asked, schedule="gpipe"))


def test_shards_need_less_than_replicas():
    assert max(needs(scheme="sharded", processes=4)) < max(needs(processes=4))


def test_every_process_has_its_need():
    assert len(needs(scheme="server", processes=2, servers=2)) == 4
    assert len(needs(scheme="hybrid", processes=4, pipeline=2)) == 4


def test_what_cannot_run_needs_nothing():
    found = planned_bytes(deep_job(batch=15, processes=2))
    assert all(isinstance(need, Absent) for need in found)


@pytest.mark.parametrize("bucket", [1, 1024])
def test_larger_groups_of_shards_need_more(bucket: int):
    assert needs(scheme="sharded", processes=2, bucket=1)[0] <= needs(scheme="sharded", processes=2, bucket=bucket)[0]
