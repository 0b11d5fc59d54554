"""TensorFlow's parameter servers: a driver makes two workers step. As with other schemes, one whole life of the
processes is recorded, and each test looks at that."""

from __future__ import annotations

import functools
import os
import signal
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from frameworks import environment_of
from memory_kills import no_kill_meanwhile
from msgspec.structs import replace
from test_contract_parallel import ERRORS, PLANTED, TIMEOUT_S, in_one_process
from tiny_jobs import tiny, tiny_job

from deepstone.absent import Absent
from deepstone.checks.parallel import TOLERANCE, judged, trained_by
from deepstone.checks.workers import check_job
from deepstone.results.sameness import SchemeSameness
from deepstone.runner.conversation import JobFailed
from deepstone.runner.replies import BlockTimes, MemoryPeak
from deepstone.runner.team import talking_to_team

PROGRAMS = {"train": 1, "exchange": 1, "local": 3, "forward": 2, "gradient": 2, "update": 1}  # and ranks that run it
DRIVER, SERVER = 3, 2


@dataclass(kw_only=True)
class Life:
    right: SchemeSameness
    planted: dict[str, SchemeSameness] = field(default_factory=dict)
    without_waiting: SchemeSameness
    effective: list[dict[str, object]] = field(default_factory=list)
    blocks: dict[str, list[BlockTimes]] = field(default_factory=dict)
    in_order: list[float] = field(default_factory=list)  # loss after each of some steps without waiting
    buckets: list[int] = field(default_factory=list)
    peaks: list[MemoryPeak] = field(default_factory=list)
    failure: JobFailed
    left: list[int] = field(default_factory=list)


@functools.cache
@no_kill_meanwhile()
def life() -> Life:
    with tempfile.TemporaryDirectory() as folder:
        plant = Path(folder, "plant")
        plant.write_text("")
        variables = {"PYTHONPATH": str(PLANTED), "DEEPSTONE_TEST_PLANT": str(plant)}
        environment = replace(environment_of("tensorflow"), variables=variables)
        axes = {"scheme": "server", "processes": 2, "device": "cpu", "threads": 1}
        job = tiny_job("tensorflow", environment=environment, **axes)
        assert job.broken_rule is None
        job = check_job(job, batch=8, phase="train", precision="fp64")
        with talking_to_team(job, timeout_s=TIMEOUT_S) as team:
            team.hello()
            alone = in_one_process(replace(job, environment=environment_of("tensorflow")))
            right = judged(alone, trained_by(team, alone))
            planted: dict[str, SchemeSameness] = {}
            for error in ERRORS:
                plant.write_text(error)
                planted[error] = judged(alone, trained_by(team, alone))
            plant.write_text("")
            without_waiting = judged(alone, trained_by(team, alone, scheme="server-async"), equivalent=False)
            in_order = [team.losses(1)[0] for _ in range(3)]
            blocks: dict[str, list[BlockTimes]] = {}
            team.block(samples=3, program="train")
            blocks["train, without waiting"] = team.last_blocks
            team.prepare()
            for program in PROGRAMS:
                team.block(samples=3, program=program)
                blocks[program] = team.last_blocks
            team.read_step_memory(steps=1)
            peaks, buckets = team.peaks, team.buckets()
            os.kill(team.pids[SERVER], signal.SIGKILL)
            with pytest.raises(JobFailed) as failed:
                team.block(samples=1000)
        return Life(
            right=right,
            planted=planted,
            without_waiting=without_waiting,
            in_order=in_order,
            effective=[{name: value.value for name, value in each.effective.items()} for each in team.prepared],
            blocks=blocks,
            buckets=buckets,
            peaks=peaks,
            failure=failed.value,
            left=[pid for pid in team.pids if Path(f"/proc/{pid}").exists()],
        )


def test_servers_that_wait_train_what_one_process_trains():
    found = life().right
    assert found.ok, found.why_not()
    for distance in (found.gradient, found.update):
        assert not isinstance(distance, Absent)
        assert distance.relative_error <= TOLERANCE / 10
    assert found.loss == pytest.approx(found.loss_of_one_process, rel=1e-12)


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_in_the_exchange_is_noticed(error: str):
    found = life().planted[error]
    assert found.is_wrong
    assert "off by" in found.why_not()


def test_servers_that_do_not_wait_are_never_called_the_same():
    found = life().without_waiting
    assert not found.ok
    assert not found.equivalent
    assert not isinstance(found.update, Absent)
    assert found.update.relative_error > 0.01
    assert life().in_order == sorted(life().in_order, reverse=True), "it trains nevertheless"


def test_every_rank_tells_what_is_in_effect():
    for rank in life().effective:
        assert not [name for name, value in rank.items() if value == "auto"]
        wanted = {"processes": 2, "servers": 1, "scheme": "server", "transport": "grpc", "batch": 8, "threads": 1}
        assert {name: rank[name] for name in wanted} == wanted


def test_programs_run_where_they_must():
    assert {name: len(blocks) for name, blocks in life().blocks.items()} == {**PROGRAMS, "train, without waiting": 1}
    for blocks in life().blocks.values():
        assert all(step_s > 0 for block in blocks for step_s in block.step_s)


def test_steps_without_waiting_end_one_after_the_other():
    """The driver is some steps ahead, so the time at which it has given out a step is not the end of it."""
    (block,) = life().blocks["train, without waiting"]
    (right,) = life().blocks["train"]
    assert max(block.step_s) > min(right.step_s) / 20
    assert sum(block.step_s) * block.steps_per_sample == pytest.approx(block.total_s, rel=0.5)


def test_all_parameters_are_on_servers():
    graph = tiny()
    values = sum(int(np.prod(shape)) for layer in graph.layers for shape in graph.parameters(layer).values())
    assert life().buckets == [8 * values]


def test_memory_of_all_ranks_is_told():
    assert len(life().peaks) == DRIVER + 1


def test_a_killed_server_is_named_and_nothing_is_left():
    found = life()
    assert found.failure.reason.startswith("rank 2 (server 0): the worker was ended by SIGKILL")
    assert found.left == []
