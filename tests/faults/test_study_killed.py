"""Studies in trouble: killed many times, two at once, on a disk that fills up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_jobs import MARK_VARIABLE, SOON_S, seconds_until_gone
from store_kit import SmallDisk

from deepstone.backends.before_import import FAKE_SCRIPT
from deepstone.store.store import Store

KILLER = Path(__file__).with_name("study_killer.py")
AT_ONCE = 2  # killers, each on a store of its own
# What fails in several ways, so that resuming must not only count but also remember.
SCRIPT = {
    "step_s": 0.001,
    "seed": 1,
    "memory": {"base": 0, "per_sample": 1, "limit": 20},
    "by": {"batch=3": {"fault": {"at": "step", "step": 0, "kind": "error"}}},
}
STUDY = """title = "To be killed"
[effort]
repetitions = 2
budget = 0.02
target = 50
[[jobs]]
model = "cifarnet"
framework = "fake"
batch = {batches}
[[jobs]]
measure = "layers"
model = "cifarnet"
framework = "fake"
batch = [2, 4]
method = "in-place"
"""
FEW, MANY = [*range(1, 6), 30, 40], [*range(1, 11), 30, 40]  # batches, for few and for many kills


def study_file(folder: Path, batches: list[int]) -> Path:
    path = folder / "killed.toml"
    path.write_text(STUDY.replace("{batches}", str(batches)))
    return path


def environment(folder: Path, mark: str = "") -> dict[str, str]:
    own = {"DEEPSTONE_CACHE": str(folder / "cache"), "HOME": str(folder), "TMPDIR": str(folder)}
    return {**os.environ, **own, FAKE_SCRIPT: json.dumps(SCRIPT), MARK_VARIABLE: mark}


def start(folder: Path, *words: object, mark: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        env=environment(folder, mark),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_whole(folder: Path, file: Path, store: Path) -> subprocess.Popen[str]:
    return start(folder, "-m", "deepstone", "study", file, "--store", store, "--json")


def finished(process: subprocess.Popen[str], *codes: int) -> str:
    out, err = process.communicate(timeout=300)
    assert process.returncode in codes, err
    return out


def result_set(path: Path) -> dict[str, Any]:
    """What a store holds, but for times: every run by job, attempt and outcome; every finding; every task's state."""
    store = Store.open(path)
    listing = store.list()
    assert listing.damaged == ()
    assert store.rebuild().damaged == ()
    state = store.studies.get("killed")
    assert state is not None
    return {
        "runs": sorted((row.id, row.job, row.outcome) for row in listing.rows),
        "findings": sorted((each.id, each.kind, each.outcome) for each in store.findings.list()),
        "tasks": [(task.id, task.state, task.why, task.runs) for task in state.tasks],
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kills", "batches"), [(12, FEW), pytest.param(100, MANY, marks=pytest.mark.deep)])
def test_killed_many_times_it_ends_as_if_it_never_was(tmp_path: Path, kills: int, batches: list[int]) -> None:
    file = study_file(tmp_path, batches)
    whole = run_whole(tmp_path, file, tmp_path / "whole")
    finished(whole, 1)
    expected = result_set(tmp_path / "whole")
    assert {outcome for _, _, outcome in expected["runs"]} == {"ok", "crashed", "oom"}
    stores = [tmp_path / f"killed-{number}" for number in range(AT_ONCE)]
    killers = [
        start(tmp_path, KILLER, number, len(range(number, kills, AT_ONCE)), store, file, mark="kill")
        for number, store in enumerate(stores)
    ]
    killed, writing = zip(*(map(int, finished(killer, 0).split()) for killer in killers), strict=True)
    assert seconds_until_gone("kill") < SOON_S
    progress = [len(Store.open(store).list().rows) for store in stores]
    ends = [run_whole(tmp_path, file, store) for store in stores]
    for end in ends:
        finished(end, 1)
    for store in stores:
        assert result_set(store) == expected
        assert [*store.rglob("*.tmp"), *store.rglob("*.claim")] == []
    assert sum(killed) == kills, progress
    assert min(progress) > 0  # else the kills came before anything was at stake
    assert sum(writing) > 0


@pytest.mark.slow
def test_two_at_once_share_the_work(tmp_path: Path) -> None:
    for number in range(4):  # on a busy machine the second may start when the first has done everything
        if both_measured(tmp_path, tmp_path / f"store-{number}"):
            return
    pytest.fail("one did all the work")


def both_measured(folder: Path, path: Path) -> bool:
    """Whether each did some of it; together they did all of it, once."""
    file = study_file(folder, [1, 2, 3, 4, 5])
    both = [run_whole(folder, file, path) for _ in range(2)]
    states = [json.loads(finished(process, 1)) for process in both]
    store = Store.open(path)
    rows = store.list().rows
    assert len(rows) == len({row.job for row in rows}) == 10
    assert len(store.findings.ids()) == 2
    for state in states:
        assert [task["state"] for task in state["tasks"]].count("done") == 10
        assert all(len(task["runs"]) == 1 for task in state["tasks"])
    assert [task["runs"] for task in states[0]["tasks"]] == [task["runs"] for task in states[1]["tasks"]]
    measured = [sum(isinstance(task["took_s"], float) for task in state["tasks"]) for state in states]
    assert sum(measured) == 12
    return min(measured) > 0


@pytest.mark.slow
def test_a_disk_that_fills_up_loses_nothing(tmp_path: Path, small_disk: SmallDisk) -> None:
    file = study_file(tmp_path, [1, 2])
    store = small_disk.root / "store"
    Store.open(store).probe()
    small_disk.fill()
    out, err = run_whole(tmp_path, file, store).communicate(timeout=200)
    assert out == ""
    assert err.count("\n") == 1
    assert "no space left on device" in err
    small_disk.make_room()
    finished(run_whole(tmp_path, file, store), 0)
    assert len(Store.open(store).list().rows) == 4
