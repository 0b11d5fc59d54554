"""Workers that import before there is a job for them: who gets one, what it measures, and that none is left."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from fake_jobs import SOON_S, Script, carrying, fake_job, seconds_until_gone
from msgspec import structs

from deepstone.backends.before_import import FAKE_SCRIPT
from deepstone.runner.job import Job
from deepstone.runner.look import look_at
from deepstone.runner.standby import Standby
from deepstone.runner.team import talking_to

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def look(job: Job, standby: Standby | None) -> Any:
    return look_at(job, timed_s=0.5, timeout_s=60.0, standby=standby)


def workers(mark: str) -> set[int]:
    """The processes that serve, without their keepers."""
    return {pid for pid in carrying(mark) if b"keeper.py" not in Path(f"/proc/{pid}/cmdline").read_bytes()}


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return TICK_S * (int(fields[11]) + int(fields[12]))


def test_a_worker_that_waited_measures_what_a_new_one_does(script: Script) -> None:
    script(step_s=0.02, noise=0.0)
    with Standby(2) as standby:
        found = [look(fake_job(), standby) for _ in range(4)]
    alone = look(fake_job(), None)
    medians = {draft.summary.step_s.median for draft in [*found, alone]}
    assert {draft.outcome for draft in found} == {"ok"}
    assert medians == {alone.summary.step_s.median}


def test_the_next_job_of_a_kind_has_a_worker_that_was_there_before(script: Script, marked_processes: str) -> None:
    script()
    with Standby(2) as standby:
        look(fake_job(), standby)
        standby.settle()
        there = workers(marked_processes)
        with talking_to(fake_job(), timeout_s=60.0, spares=standby) as talk:
            assert len(there) == 2
            assert talk.hello().pid in there
    assert seconds_until_gone(marked_processes) < 60


def test_it_serves_one_job_only(script: Script, marked_processes: str) -> None:
    script()
    pids: list[int] = []
    with Standby(2) as standby:
        for _ in range(5):
            with talking_to(fake_job(), timeout_s=60.0, spares=standby) as talk:
                pids.append(talk.hello().pid)
    assert len(set(pids)) == 5
    assert seconds_until_gone(marked_processes) < 60


@pytest.mark.parametrize(("axes", "variable"), [({"affinity": "0"}, ""), ({}, "OMP_DYNAMIC")])
def test_a_job_that_starts_otherwise_has_no_worker_of_another_kind(
    script: Script, monkeypatch: pytest.MonkeyPatch, marked_processes: str, axes: dict[str, str], variable: str
) -> None:
    script()
    with Standby(1) as standby:
        look(fake_job(), standby)
        standby.settle()
        there = workers(marked_processes)
        if variable:
            monkeypatch.setenv(variable, "true")
        with talking_to(fake_job(**axes), timeout_s=60.0, spares=standby) as talk:
            assert talk.hello().pid not in there


def test_one_that_was_killed_while_it_waited_is_not_given_away(script: Script, marked_processes: str) -> None:
    script()
    with Standby(2) as standby:
        look(fake_job(), standby)
        standby.settle()
        killed = workers(marked_processes)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        found = look(fake_job(), standby)
        assert killed
        assert found.outcome == "ok"


def test_nobody_works_while_a_worker_is_timed(script: Script, marked_processes: str) -> None:
    script()
    with Standby(2) as standby:
        look(fake_job(), standby)
        standby.settle()
        before = {pid: cpu_s(pid) for pid in carrying(marked_processes)}
        time.sleep(1.0)
        used = {pid: cpu_s(pid) - before[pid] for pid in carrying(marked_processes)}
        assert len(used) >= 2
        assert max(used.values()) <= 2 * TICK_S


def test_an_import_that_hangs_is_waited_for_once_and_ended(
    script: Script, marked_processes: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nor may it use up the time of a search, nor go on while others are timed."""
    script()
    hangs = tmp_path / "python"
    hangs.write_text("#!/bin/sh\nexec sleep 1000\n")
    hangs.chmod(0o755)
    job = fake_job()
    job = structs.replace(job, environment=structs.replace(job.environment, program=hangs))
    monkeypatch.setattr("deepstone.runner.standby.PATIENCE_S", 1.0)
    with Standby(2) as standby:
        assert standby.take(job) is None
        assert workers(marked_processes)
        began_s = time.monotonic()
        standby.settle()
        assert 1.0 <= time.monotonic() - began_s < SOON_S
        assert seconds_until_gone(marked_processes) < SOON_S
        assert standby.take(job) is None
        assert not carrying(marked_processes)
        look(fake_job(), standby)  # others of another kind are there as before
        standby.settle()
        assert workers(marked_processes)


@pytest.mark.parametrize("axes", [{"processes": 2}, {"power_limit": 300}])
def test_nobody_waits_for_what_holds_for_more_than_a_worker(script: Script, axes: dict[str, int]) -> None:
    script()
    with Standby(1) as standby:
        assert [standby.take(fake_job(**axes)) for _ in range(2)] == [None, None]


def test_an_environment_that_is_gone_is_told_by_the_job(script: Script, tmp_path: Path) -> None:
    script()
    job = fake_job()
    gone = structs.replace(job, environment=structs.replace(job.environment, program=tmp_path / "python"))
    with Standby(1) as standby:
        assert standby.take(gone) is None


def test_a_framework_that_does_not_import_is_told_by_the_job(
    monkeypatch: pytest.MonkeyPatch, script: Script, marked_processes: str
) -> None:
    script()
    with Standby(1) as standby:
        look(fake_job(), standby)
        monkeypatch.setenv(FAKE_SCRIPT, "no JSON")
        found = [look(fake_job(), standby) for _ in range(2)]
    assert {draft.outcome for draft in found} == {"crashed"}
    assert seconds_until_gone(marked_processes) < 60


def test_leaving_ends_those_that_wait(script: Script, marked_processes: str) -> None:
    script()
    with Standby(3) as standby:
        look(fake_job(), standby)
        assert len(carrying(marked_processes)) >= 3
    assert seconds_until_gone(marked_processes) < 60
