"""Ranks whose clocks are not ours, for real: in a time namespace of its own, Linux shifts the clock of a process."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fake_jobs import Script, fake_job

import deepstone
from deepstone.launchers.engine import Engine
from deepstone.measure.effort import Effort
from deepstone.results import codec
from deepstone.runner import muster
from deepstone.runner.run import run_job
from deepstone.store.contradictions import check_consistent
from deepstone.store.store import Store

OFFSET_S = 5000
DRIFT = 1e-2  # a thousand times that of a bad clock, and many times what a busy machine makes of it
STEP_S = 0.02


def why_not() -> str:
    if shutil.which("unshare") is None:
        return "unshare is not installed (Debian: util-linux)"
    tried = subprocess.run(["unshare", "--time", "--monotonic", "5", "--fork", "true"], capture_output=True, text=True)
    return f"no time namespaces here: {tried.stderr.strip()}" if tried.returncode else ""


@pytest.fixture
def apart_in_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A launcher that puts rank 1 into a time namespace; its clock shows other seconds than ours."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    join = f"{sys.executable} -I -S {Path(deepstone.__file__).parent}/worker/join.py"
    ranks = [
        f"OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK={rank} {inside} {join} &"
        for rank, inside in enumerate(("", f"unshare --time --monotonic {OFFSET_S} --fork"))
    ]
    path = tmp_path / "launch"
    path.write_text("\n".join(["#!/bin/sh", *ranks, "wait", ""]))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    engine = Engine(name="mpirun", kind="openmpi", version="1.0", command=(str(path),))
    monkeypatch.setattr(muster, "find_engine", lambda *_: engine)


def test_steps_of_ranks_with_other_clocks_are_told_on_ours(apart_in_time: None, script: Script, store: Store):
    script(sleep=True, step_s=STEP_S, noise=0.0, ranks={"0": {"clock": {}}, "1": {"clock": {"drift": DRIFT}}})
    job = fake_job(processes=2, launcher="mpirun")
    record: Any = store.get(store.add(run_job(job, Effort(budget_s=2.0, timeout_s=120.0))).id).to_json()
    assert record["outcome"] == "ok", record["failure"]
    ours, theirs = (rank["clock"] for rank in record["parallel"]["ranks"])
    assert ours == {"offset_s": 0.0, "drift": 0.0, "error_s": 0.0}
    # The planted drift counts from the boot of the machine, however long ago that was.
    assert theirs["offset_s"] == pytest.approx(OFFSET_S + DRIFT * (time.perf_counter() + OFFSET_S), abs=10)
    assert theirs["drift"] == pytest.approx(DRIFT, rel=0.2)
    assert 0 < theirs["error_s"] < 0.1
    one, other = record["samples"]["launches"][0]["ranks"]
    for mine, its in zip(one["blocks"], other["blocks"], strict=True):
        assert its["start_s"] == pytest.approx(mine["start_s"], abs=60)  # not 5000
    assert 0.9 * STEP_S < record["summary"]["step_s"]["median"] < 50 * STEP_S
    check_consistent(codec.as_record(record))
    assert "another machine" in record["energy"]["absent"]  # which a clock that is not ours may mean
    told = {doubt["code"] for doubt in record["doubts"]}
    assert ("clock_unaligned" in told) == (theirs["error_s"] > 0.02 * record["summary"]["step_s"]["median"])
