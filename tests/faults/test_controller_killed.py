"""The real command line in trouble: killed at random moments, interrupted, out of disk, two at once.

What a controller has acknowledged ("stored ID" on its standard error) must be in the store, once and intact, and no
process of the job may outlive it for long, not even a daemon.
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from controllers import WITH_DAEMON, Controller
from fake_jobs import SOON_S, carrying, seconds_until_gone
from store_kit import SmallDisk

from deepstone.absent import Absent
from deepstone.store.store import Store


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Callable[..., Controller]]:
    made: list[Controller] = []

    def make(*axes: str, store: Path | None = None, **settings: object) -> Controller:
        new = Controller(tmp_path / "work", store or tmp_path / "store", axes, **settings)
        made.append(new)
        return new

    yield make
    for each in made:
        with suppress(AttributeError):  # never started
            each.clean_up()


def assert_intact(path: Path, acknowledged: list[str]) -> Store:
    """Every acknowledged run is there once, every file can be read, and nothing half-done is left."""
    assert len(set(acknowledged)) == len(acknowledged)
    store = Store.open(path)
    listing = store.list()
    listed = [row.id for row in listing.rows]
    assert len(set(listed)) == len(listed)
    assert set(acknowledged) <= set(listed)
    assert listing.damaged == ()
    for run in acknowledged:
        record = store.get(run)
        assert record.outcome == "ok"
        assert not isinstance(record.summary, Absent)
        assert record.summary.step_s.n > 0
    assert {row.id for row in store.rebuild().rows} == set(listed)
    assert [*path.rglob("*.tmp"), *path.rglob("*.claim")] == []
    return store


# Moments of a controller's life; kills take turns.
STARTING, MEASURING, STORING, ANYWHERE = "starting", "measuring", "storing", "anywhere"
TURNS = (STARTING, MEASURING, STORING, ANYWHERE, STORING)


class Killer:
    """Starts controllers on one store and kills each at a moment of its own. Several threads may do so at once."""

    def __init__(self, folder: Path, store: Path) -> None:
        self._folder = folder
        self._store = store
        self._lock = threading.Lock()
        self.acknowledged: list[str] = []
        self.slowest_end_s = 0.0
        self.killed: dict[str, int] = {}
        self.cut_short = 0  # left a temporary file behind, so were hit while they stored

    def kill_one(self, number: int) -> None:
        chance = random.Random(number)
        moment = TURNS[number % len(TURNS)]
        # Every controller measures other batches in another order, but all of them several that others measure too.
        batches = chance.sample(range(1, 41), 30)
        stored = chance.choice([0, 0, 1, 2])
        script = dict(WITH_DAEMON)
        if moment == MEASURING and chance.random() < 0.5:  # a worker that would not notice that nobody asks any more
            script["by"] = {f"batch={batches[stored]}": {"fault": {"at": "step", "step": 3, "kind": "hang"}}}
        axis = "batch=" + ",".join(map(str, batches))
        folder = self._folder / str(number)
        controller = Controller(folder, self._store, (axis,), script=script, slow_disk=moment == STORING)
        controller.start()
        try:
            self._wait_for(controller, moment, stored, chance)
            assert controller.process.poll() is None, controller.stderr
            controller.process.kill()
            controller.process.wait()
            cut_short = self._is_writing(f"{controller.process.pid}.")
            taken_s = seconds_until_gone(controller.mark)
        finally:
            controller.clean_up()
        with self._lock:
            self.acknowledged += controller.acknowledged
            self.slowest_end_s = max(self.slowest_end_s, taken_s)
            self.cut_short += cut_short
            self.killed[moment] = self.killed.get(moment, 0) + 1

    def _wait_for(self, controller: Controller, moment: str, stored: int, chance: random.Random) -> None:
        if moment == STARTING:
            time.sleep(chance.uniform(0, 1.0))
            return
        if moment == ANYWHERE:
            time.sleep(chance.uniform(0, 4.0))
            return
        controller.wait_for(lambda: len(controller.acknowledged) >= stored)
        controller.wait_for_worker()
        if moment == MEASURING:
            time.sleep(chance.uniform(0, 0.6))
        else:
            mine = f"{controller.process.pid}."
            controller.wait_for(lambda: self._is_writing(mine) or len(controller.acknowledged) > stored)
            time.sleep(chance.choice([0, 0, chance.uniform(0, 0.1)]))

    def _is_writing(self, owner: str) -> bool:
        """A temporary file carries its owner's pid in its name."""
        with suppress(FileNotFoundError):
            return any(entry.name.startswith(owner) for entry in (self._store / "tmp").iterdir())
        return False


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [15, pytest.param(100, marks=pytest.mark.deep)])
def test_killed_at_random_moments(tmp_path: Path, controller, kills: int):
    store = tmp_path / "store"
    Store.open(store)
    killer = Killer(tmp_path / "work", store)
    with ThreadPoolExecutor(max_workers=4) as pool:
        for done in [pool.submit(killer.kill_one, number) for number in range(kills)]:
            done.result()
    assert sum(killer.killed.values()) == kills
    assert killer.slowest_end_s < SOON_S
    assert len(killer.acknowledged) >= 0.3 * kills  # else the kills came before anything was at stake
    assert killer.cut_short > 0
    opened = assert_intact(store, killer.acknowledged)
    # Besides what was acknowledged, each kill may have hit between the writing and the telling of one run.
    assert len(opened.list().rows) <= len(killer.acknowledged) + kills
    afterwards = controller("batch=1", store=store).start()
    assert afterwards.finish() == 0
    assert_intact(store, [*killer.acknowledged, *afterwards.acknowledged])


@pytest.mark.slow
class TestSignals:
    @pytest.mark.parametrize(
        ("number", "code", "says"),
        [
            pytest.param(signal.SIGINT, 130, "interrupted", id="SIGINT"),
            # tests/cli/test_cli_streams.py has it, on a worker without a daemon.
            pytest.param(signal.SIGTERM, 143, "terminated", id="SIGTERM", marks=pytest.mark.deep),
        ],
    )
    def test_it_ends_its_workers_and_keeps_what_is_stored(self, controller, number: int, code: int, says: str):
        """In the middle of the third job, the first two being stored."""
        endless = {**WITH_DAEMON, "by": {"batch=3": {"step_s": 600}}}
        run = controller("batch=1,2,3,4", script=endless).start()
        run.wait_for(lambda: len(run.acknowledged) == 2)
        run.wait_for_worker()
        time.sleep(0.3)
        run.process.send_signal(number)
        assert run.finish() == code
        assert carrying(run.mark) == []
        assert len(run.acknowledged) == 2
        assert run.stderr.splitlines()[-1] == f"deepstone: {says}; runs already stored are kept"
        assert "Traceback" not in run.stderr
        store = assert_intact(run.store, run.acknowledged)
        assert len(store.list().rows) == 2

    def test_twice_in_a_row(self, controller):
        """Impatience must not leave anything behind."""
        run = controller("batch=1,2", script=WITH_DAEMON, options=("--budget", "60", "--target", "0.01")).start()
        run.wait_for_worker()
        for _ in range(3):
            run.process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        assert run.finish() in (130, -signal.SIGINT)
        assert seconds_until_gone(run.mark) < SOON_S


@pytest.mark.slow
class TestDisk:
    def test_a_disk_that_fills_up_while_measuring_loses_no_run(self, controller, small_disk: SmallDisk):
        store = small_disk.root / "store"
        # The second takes as long as this process needs to see the first stored, on however busy a machine.
        slow = {**WITH_DAEMON, "by": {"batch=2": {"step_s": 0.3}}}
        run = controller("batch=1,2", store=store, script=slow).start()
        run.wait_for(lambda: len(run.acknowledged) == 1)
        run.wait_for_worker()
        small_disk.fill()
        assert run.finish() == 3
        assert carrying(run.mark) == []
        last = run.stderr.splitlines()[-1]
        saved = re.search(r"no space left on device; the run is saved in (\S+): make room", last)
        assert saved, last
        small_disk.make_room()
        imported = subprocess.run(
            [sys.executable, "-m", "deepstone", "results", "import", saved[1], "--store", str(store)],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert imported.returncode == 0, imported.stderr
        rows = assert_intact(store, run.acknowledged).list().rows
        assert sorted(row.batch for row in rows) == [1, 2]

    @pytest.mark.parametrize(
        ("spoil", "reason"),
        [(SmallDisk.fill, "no space left on device"), (SmallDisk.make_read_only, "read-only file system")],
    )
    def test_a_bad_store_is_found_before_anything_is_measured(
        self, controller, small_disk: SmallDisk, spoil: Callable[[SmallDisk], None], reason: str
    ):
        store = small_disk.root / "store"
        Store.open(store).probe()
        spoil(small_disk)
        run = controller("batch=1", store=store).start()
        assert run.finish() == 3
        assert run.stderr.startswith("deepstone: ")
        assert len(run.stderr.splitlines()) == 1
        assert reason in run.stderr
        assert not (run.folder / "cache").exists()
        assert not (run.folder / "cache").exists()  # a worker's weights would have been kept there


@pytest.mark.slow
def test_two_controllers_on_one_store_do_the_same_jobs(controller):
    runs = [controller("batch=1,2,3", script={"step_s": 0.001, "sleep": True}).start() for _ in range(2)]
    assert [run.finish() for run in runs] == [0, 0]
    acknowledged = [run for each in runs for run in each.acknowledged]
    assert len(acknowledged) == 6
    rows = assert_intact(runs[0].store, acknowledged).list().rows
    assert sorted(row.batch for row in rows) == [1, 1, 2, 2, 3, 3]
    assert {row.id for row in rows} == set(acknowledged)
