"""Runs a study again and again in children of its own, and kills each at a random moment, or while it stores.

    python study_killer.py SEED KILLS STORE STUDY

Forked after the study is planned, a child begins to work at once, so that a hundred lives take seconds. Prints how many
children were killed before they had finished the study, and how many of them while they wrote a file.
"""

from __future__ import annotations

import os
import random
import runpy
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from deepstone.store.store import Store
from deepstone.studies.find import find_study
from deepstone.studies.plan import Plan, make_plan
from deepstone.studies.run import run_study
from deepstone.studies.study_run import Call, StudyRun

CALL = Call(command=("deepstone", "study"), resume="deepstone study")
LONGEST = 1.4  # lives, in times of what it takes until a first run is stored
SHARE = 0.5  # of the tasks are done at most when the last life ends: there must be something left for it
STORING = 3  # every third life ends when it begins to write


class Quiet:
    def begin(self, status: object) -> None: ...
    def advance(self, stage: str, share: float) -> None: ...
    def end(self, status: object, performed: object) -> None: ...
    def waiting(self, tasks: int) -> None: ...


def life(plan: Plan, path: Path, *, slow_disk: bool) -> int:
    """A child that works at the study; its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        if slow_disk:
            runpy.run_path(str(Path(__file__).with_name("slow_disk") / "sitecustomize.py"))
        store = Store.open(path)
        run_study(StudyRun(plan, store, CALL), store, CALL, Quiet())
        os._exit(0)
    finally:
        os._exit(99)


def has_ended(pid: int) -> bool:
    return bool(os.waitpid(pid, os.WNOHANG)[0])


def is_writing(pid: int, store: Path) -> bool:
    """A temporary file carries its owner's pid in its name."""
    return any(path.name.startswith(f"{pid}.") for path in (store / "tmp").glob("*"))


def stored(store: Path) -> int:
    return len(list(store.glob("runs/*/*.json")))


def wait_for_writing(pid: int, store: Path, most: int) -> None:
    """Until it has claimed a job, which it does before it measures, and then writes what it measured."""
    for is_so in (lambda: any(_claims(pid, store)), lambda: is_writing(pid, store)):
        while not is_so() and stored(store) < most:
            time.sleep(0.0005)


def let_live(store: Path, seconds: float, most: int) -> None:
    """For so long, or until so many runs are stored: the machine may be quicker now than it was at first."""
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0 and stored(store) < most:
        time.sleep(min(left_s, 0.005))


def _claims(pid: int, store: Path) -> Iterator[bool]:
    for path in (store / "claims").glob("*.claim"):
        with suppress(FileNotFoundError):
            yield path.read_text().startswith(f"{pid}.")


def seconds_to_first_run(pid: int, store: Path) -> float:
    """How long a life takes here and now until it has stored something; the moments of death are drawn by that."""
    start_s = time.monotonic()
    while not stored(store):
        assert not has_ended(pid), "it ended before it had stored anything"
        time.sleep(0.002)
    return time.monotonic() - start_s


def kill_many(seed: int, kills: int, store: Path, study: str) -> tuple[int, int]:
    plan = make_plan(find_study(study))
    chance = random.Random(seed)
    first_s, writing = 0.0, 0
    for killed in range(kills):
        most = 2 + round(SHARE * len(plan.tasks) * killed / kills)
        pid = life(plan, store, slow_disk=killed % STORING == 0)
        if killed == 0:
            first_s = seconds_to_first_run(pid, store)
        elif killed % STORING == 0:
            wait_for_writing(pid, store, most + 1)
            time.sleep(chance.choice([0, 0, chance.uniform(0, 0.01)]))
        else:
            let_live(store, chance.uniform(0, LONGEST * first_s), most)
        if has_ended(pid):
            return killed, writing  # nothing was left to kill it at
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        writing += is_writing(pid, store)
    return kills, writing


if __name__ == "__main__":
    print(*kill_many(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]))  # noqa: T201
