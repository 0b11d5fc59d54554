"""Which processes a request means, what each of them does, and which part of the batch it has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.setups.axes import Value
from deepstone.setups.request import complete
from deepstone.setups.rules import broken_rule
from deepstone.setups.world import Parts, World


def world(**axes: Value) -> World:
    return World.of(complete({"framework": "fake", **axes}))


@pytest.mark.parametrize(
    ("axes", "roles", "shares", "stages"),
    [
        ({"processes": 2}, "ww", [0, 1], [0, 0]),
        ({"processes": 2, "scheme": "sharded"}, "ww", [0, 1], [0, 0]),
        ({"processes": 2, "scheme": "server"}, "wws", [0, 1, 0], [0, 0, 0]),
        ({"processes": 2, "scheme": "server-async", "servers": 2}, "wwss", [0, 1, 0, 0], [0, 0, 0, 0]),
        ({"processes": 2, "scheme": "server", "framework": "tensorflow@2.21.0"}, "wwsd", [0, 1, 0, 0], [0, 0, 0, 0]),
        ({"processes": 3, "scheme": "pipeline"}, "www", [0, 0, 0], [0, 1, 2]),
        ({"processes": 4, "scheme": "hybrid", "pipeline": 2}, "wwww", [0, 0, 1, 1], [0, 1, 0, 1]),
    ],
)
def test_what_each_rank_does(axes, roles: str, shares: list[int], stages: list[int]):
    found = world(**axes)
    ranks = range(found.started)
    assert "".join(found.role(rank)[0] for rank in ranks) == roles
    assert [found.data_rank(rank) for rank in ranks] == shares
    assert [found.stage(rank) for rank in ranks] == stages
    assert found.data_ranks == max(shares) + 1


def test_ranks_are_told_with_what_they_do():
    assert world(processes=2).title(1) == "rank 1"
    assert world(processes=2, scheme="server").title(2) == "rank 2 (server 0)"
    assert world(processes=2, scheme="server", framework="tensorflow").title(3) == "rank 3 (driver)"
    assert world(processes=4, scheme="hybrid", pipeline=2).title(3) == "rank 3 (stage 1)"


@pytest.mark.parametrize(
    ("axes", "microbatches", "schedule"),
    [
        ({"processes": 2, "batch": 32}, 8, "1f1b"),
        ({"processes": 2, "batch": 6}, 6, "1f1b"),
        ({"processes": 4, "batch": 3}, 3, "gpipe"),  # too few for 1F1B
        ({"processes": 4, "batch": 32, "microbatches": 1}, 1, "gpipe"),  # layers split, and no pipeline
        ({"processes": 4, "batch": 14, "schedule": "interleaved"}, 7, "interleaved"),
        ({"processes": 2, "batch": 8, "schedule": "gpipe", "microbatches": 4}, 4, "gpipe"),
    ],
)
def test_how_a_pipeline_divides_its_batch(axes, microbatches: int, schedule: str):
    request = complete({"scheme": "pipeline", **axes})
    parts = Parts.of(request)
    assert (parts.microbatches, parts.schedule) == (microbatches, schedule)


@given(
    st.fixed_dictionaries(
        {
            "scheme": st.sampled_from(["data", "sharded", "server", "pipeline"]),
            "processes": st.integers(2, 6),
            "batch": st.integers(1, 64),
            "accumulate": st.integers(1, 3),
        }
    )
)
def test_what_is_left_open_fits_wherever_the_batch_can_be_shared_out(axes):
    request = complete({"framework": "fake", **axes})
    shared = World.of(request).data_ranks * axes["accumulate"]
    assert (broken_rule(request) is None) == (axes["batch"] % shared == 0)
