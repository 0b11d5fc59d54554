"""Every combination of compression, overlap, transport, collective, accumulation and buckets either runs as asked or is
refused before anything starts. One team of each transport runs them, one after the other."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from deepstone.environments.find import find_environment
from deepstone.runner.examine import probe_job
from deepstone.runner.job import Machine
from deepstone.runner.team import Team, rank_jobs, talking_to_team
from deepstone.setups.request import complete
from deepstone.setups.rules import broken_rule

TABLE = {
    "compression": ("none", "fp16", "powersgd", "onebit"),
    "overlap": ("auto", "on", "off"),
    "collective": ("auto", "allreduce", "reduce-broadcast"),
    "accumulate": (1, 2),
    "bucket": ("auto", 1),
}
SOME = 8


def request_of(transport: str, **axes: Any) -> dict[str, Any]:
    own = {"framework": "torch", "device": "cpu", "threads": 1, "processes": 2, "batch": 8, "transport": transport}
    return {**complete({**own, **axes})}


def combinations(transport: str) -> list[dict[str, Any]]:
    """Those that no rule refuses."""
    every = [dict(zip(TABLE, values, strict=True)) for values in product(*TABLE.values())]
    return [axes for axes in every if broken_rule(request_of(transport, **axes)) is None]


@pytest.fixture(scope="module", params=["gloo", pytest.param("mpi", marks=pytest.mark.deep)])
def team(request: pytest.FixtureRequest) -> Iterator[Team]:
    job = probe_job(find_environment("torch"), Machine.here(), request_of(request.param))
    with talking_to_team(job, timeout_s=1200.0) as team:
        team.hello()
        yield team
        team.close()


def try_out(team: Team, axes: dict[str, Any]) -> None:
    transport = str(team.job.request["transport"])
    jobs = rank_jobs(replace(team.job, request=request_of(transport, **axes)))
    prepared = team.ask(lambda rank: rank.prepare(jobs[0]))
    assert [each.contradiction(jobs[0].request) for each in prepared] == [None, None]
    for program in ("", "meet", "local", *(["exchange"] if axes["compression"] == "none" else [])):
        assert len(team.block(samples=1, program=program).step_s) == 1
    team.restore()
    assert math.isfinite(team.losses(1)[0])
    team.sample("parameters", most=16)
    assert team.differing == []


def test_some(team: Team):
    every = combinations(str(team.job.request["transport"]))
    for axes in random.Random(1).sample(every, min(SOME, len(every))):
        try_out(team, axes)


@pytest.mark.deep
def test_all(team: Team):
    for axes in combinations(str(team.job.request["transport"])):
        try_out(team, axes)
