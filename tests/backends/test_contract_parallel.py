"""The contract of backends that train in several processes, beside that of torch (tests/checks, tests/cli).

A team takes many seconds to start and to compile, so one whole life of it is recorded, and each test looks at that.
"""

from __future__ import annotations

import functools
import os
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frameworks import environment_of
from memory_kills import no_kill_meanwhile
from msgspec.structs import replace
from scheme_checks import assert_as_one_process
from shared_workers import shared_worker
from tiny_jobs import tiny, tiny_job

from deepstone.checks import parallel
from deepstone.checks.parallel import Trained, judged, trained_by
from deepstone.checks.workers import check_job
from deepstone.results.sameness import SchemeSameness
from deepstone.runner.conversation import JobFailed
from deepstone.runner.job import Job
from deepstone.runner.replies import BlockTimes, Prepared
from deepstone.runner.team import Team, talking_to_team
from deepstone.setups.effective import contradiction

pytestmark = pytest.mark.usefixtures("unoptimized_xla")
PLANTED = Path(__file__).with_name("planted_in_group")
ERRORS = ("sum", "dropped", "shard twice")
PROGRAMS = ("train", "meet", "local", "exchange", "forward", "gradient")
TIMEOUT_S = 600.0
IDLE_S = 1.0
MOST_IDLE_CPU_S = 0.2 * IDLE_S
# What each framework moves gradients by, as its library is to say.
TRANSPORTS = {"jax": "gloo", "tensorflow": "grpc"}

every_framework = pytest.mark.parametrize("framework", TRANSPORTS)


@dataclass(kw_only=True)
class Life:
    """What two processes said of one job, and how it ended."""

    transport: str = ""
    right: SchemeSameness | None = None
    planted: dict[str, SchemeSameness] = field(default_factory=dict)
    prepared: list[Prepared] = field(default_factory=list)
    request: dict[str, Any] = field(default_factory=dict)
    blocks: dict[str, list[BlockTimes]] = field(default_factory=dict)  # by program, of each rank
    buckets: list[int] = field(default_factory=list)
    apart: bool = False  # after steps without communication
    restored: bool = False
    idle_cpu_s: float = 0.0
    failure: JobFailed | None = None
    left: list[int] = field(default_factory=list)  # processes


@functools.cache
@no_kill_meanwhile()
def life_of(framework: str) -> Life:
    with tempfile.TemporaryDirectory() as folder:
        plant = Path(folder, "plant")
        plant.write_text("")
        variables = {"PYTHONPATH": str(PLANTED), "DEEPSTONE_TEST_PLANT": str(plant)}
        environment = replace(environment_of(framework), variables=variables)
        axes = {"processes": 2, "accumulate": 2, "device": "cpu", "threads": 1}
        job = check_job(tiny_job(framework, environment=environment, **axes), batch=8, phase="train", precision="fp64")
        found = Life(request=dict(job.request))
        with talking_to_team(job, timeout_s=TIMEOUT_S) as team:
            team.hello()
            found.transport = team.transport
            alone = in_one_process(replace(job, environment=environment_of(framework)))
            found.right = judged(alone, trained_by(team, alone))
            for error in ERRORS:
                plant.write_text(error)
                found.planted[error] = judged(alone, trained_by(team, alone))
            plant.write_text("")
            measure(team, found)
            os.kill(team.pids[1], signal.SIGKILL)
            with pytest.raises(JobFailed) as failed:
                team.block(samples=1000)
            found.failure = failed.value
        found.left = [pid for pid in team.pids if Path(f"/proc/{pid}").exists()]
    return found


def measure(team: Team, found: Life) -> None:
    team.prepare()
    found.prepared = team.prepared
    for program in PROGRAMS:
        team.block(samples=3, program=program)
        found.blocks[program] = team.last_blocks
    found.buckets = team.buckets()
    found.apart = not replicas_are_equal(team)
    team.restore()
    found.restored = replicas_are_equal(team)
    for _ in range(10):  # on a busy machine it takes a while until all threads sleep
        before_s = cpu_s(team.pids)
        time.sleep(IDLE_S)
        found.idle_cpu_s = cpu_s(team.pids) - before_s
        if found.idle_cpu_s < MOST_IDLE_CPU_S:
            break


def in_one_process(job: Job) -> Trained:
    """With a worker that other tests share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "talking_to_worker", shared_worker)
        return parallel.trained_alone(job, TIMEOUT_S)[0]


def replicas_are_equal(team: Team) -> bool:
    first, second = ({name: np.load(path) for name, path in rank.items()} for rank in team.dump("parameters"))
    return all(np.array_equal(first[name], second[name]) for name in first)


def cpu_s(pids: list[int]) -> float:
    ticks = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for pid in pids]
    return sum(int(each) for pair in ticks for each in pair) / os.sysconf("SC_CLK_TCK")


@every_framework
def test_it_trains_what_one_process_trains_in_parts(framework: str):
    """With batch norm, whose statistics are those of each part; gradients, updates with momentum, losses."""
    found = life_of(framework).right
    assert found is not None
    assert_as_one_process(found)


@every_framework
@pytest.mark.parametrize("error", ERRORS)
def test_an_error_in_the_exchange_is_noticed(framework: str, error: str):
    found = life_of(framework).planted[error]
    assert not found.failure
    assert found.is_wrong
    assert "off by" in found.why_not()


@every_framework
def test_what_is_in_effect(framework: str):
    found = life_of(framework)
    assert found.transport == TRANSPORTS[framework]
    for prepared in found.prepared:
        effective = prepared.effective
        assert contradiction({**found.request, "launcher": "auto"}, effective) is None
        assert (effective["processes"].value, effective["processes"].source) == (2, "observed")
        assert effective["batch"].value == 8
        assert effective["transport"].value == TRANSPORTS[framework]
        assert effective["threads"].value == 1
        assert not [name for name, value in effective.items() if value.value == "auto"]


@every_framework
def test_every_program_is_timed_on_every_rank(framework: str):
    for blocks in life_of(framework).blocks.values():
        assert len(blocks) == 2
        assert all(step_s > 0 for block in blocks for step_s in block.step_s)


@every_framework
def test_all_gradients_are_exchanged(framework: str):
    graph = tiny()
    values = sum(int(np.prod(shape)) for layer in graph.layers for shape in graph.parameters(layer).values())
    assert sum(life_of(framework).buckets) == 8 * values


@every_framework
def test_replicas_drift_apart_without_communication_and_are_restored(framework: str):
    found = life_of(framework)
    assert (found.apart, found.restored) == (True, True)


@every_framework
def test_processes_that_wait_burn_no_cpu(framework: str):
    assert life_of(framework).idle_cpu_s < MOST_IDLE_CPU_S


@every_framework
def test_a_killed_process_is_named_and_nothing_is_left(framework: str):
    found = life_of(framework)
    assert found.failure is not None
    assert found.failure.reason.startswith("rank 1: the worker was ended by SIGKILL")
    assert found.left == []
