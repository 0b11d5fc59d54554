"""Processes that train together with torch: one is killed or stopped inside an all-reduce, in which the other waits."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from memory_kills import no_kill_meanwhile

from deepstone.environments.find import find_environment
from deepstone.models.load import LoadedModel
from deepstone.models.zoo import ZOO
from deepstone.runner import team as teams
from deepstone.runner.conversation import JobFailed
from deepstone.runner.job import Job, Machine
from deepstone.runner.team import Team, talking_to_team
from deepstone.setups.request import complete

# A kill is told after 0.1 s with gloo, also at a load of 10 on two cores, and after 0.7 s with MPI, whose peers wait
# forever. What may come on top is bounded: one second for peers to say what they know, two for them to end.
WITHIN_S = 60.0  # on however busy a machine; who does not see it waits for half an hour
GRACE_S = 1.0  # instead of half a minute
PATIENCE_S = 3.0  # until a process that does not answer is looked at
BUSY_S = 60.0  # how much longer that may take on a machine that others use


def job() -> Job:
    graph = ZOO["cifarnet"].make()
    return Job(
        model=LoadedModel(graph=graph, name=graph.name, source="zoo", file_sha256=""),
        request=complete({"framework": "torch", "device": "cpu", "batch": 4, "threads": 1, "processes": 2}),
        environment=find_environment("torch"),
        machine=Machine.here(),
        command=("deepstone", "run", "cifarnet"),
    )


def listening(pids: list[int]) -> set[int]:
    """Ports at which these processes wait for others."""
    connections = [each for pid in pids for each in psutil.Process(pid).net_connections("tcp")]
    return {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}


def all_listening() -> set[int]:
    return {each.laddr.port for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN}


def strike(team: Team, number: signal.Signals) -> tuple[JobFailed, float, set[int]]:
    """Once both do nothing but reduce. How the job failed, after which time, and at which ports they waited."""
    team.block(samples=1, program="exchange")
    ports = listening(team.pids)
    with ThreadPoolExecutor(1) as pool:
        reducing = pool.submit(team.block, samples=10**6, program="exchange")
        time.sleep(1.0)
        assert not reducing.done()
        struck_s = time.monotonic()
        os.kill(team.pids[1], number)
        failure = reducing.exception(timeout=200)
        taken_s = time.monotonic() - struck_s
    assert isinstance(failure, JobFailed)
    return failure, taken_s, ports


@pytest.mark.slow
@no_kill_meanwhile()
def test_the_rank_is_named_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch):
    """Three jobs in a row: each but the first shows that the one before left nothing in its way."""
    monkeypatch.setattr(teams, "_BLOCK_GRACE_S", GRACE_S)
    for number, outcome, told, within_s in (
        (signal.SIGKILL, "crashed", "rank 1: the worker was ended by SIGKILL; ", WITHIN_S),
        (signal.SIGSTOP, "timeout", "rank 1: it is stopped", PATIENCE_S + BUSY_S),
    ):
        with talking_to_team(job(), timeout_s=300) as team:
            team.hello()
            team.prepare()
            pids = list(team.pids)
            if number == signal.SIGSTOP:
                monkeypatch.setattr(team, "_patience_s", lambda steps: PATIENCE_S)
            failure, taken_s, ports = strike(team, number)
        assert failure.outcome == outcome
        assert failure.reason.startswith(told)
        assert "rank 0" in failure.reason  # it went with the other, or on busy cores it still waited and was ended
        assert taken_s < within_s
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        assert ports  # rank 0's own, at which the other found it
        assert not ports & all_listening()
    with talking_to_team(job(), timeout_s=300) as team:
        team.hello()
        team.prepare()
        assert len(team.block(samples=3).step_s) == 3
