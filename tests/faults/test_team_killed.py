"""Jobs of several processes in trouble: any process of them is killed at any moment, and nothing of them is left."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from controllers import TINY, WITH_DAEMON, Controller
from fake_jobs import SOON_S, carrying, seconds_until_gone

LAUNCHERS = ("local", "mpirun", "torchrun")
LONG = ("--budget", "60", "--target", "0.01")
PATIENCE_S = 60.0  # for a controller that has lost a process to see to the rest
NOTICED_S = 10.0  # a job that goes on after that did not need what was killed
# From the start of a controller until its ranks measure, on a busy machine.
LONGEST_S = {"local": 4.0, "mpirun": 5.0, "torchrun": 10.0}


@pytest.fixture
def killer(tmp_path: Path) -> Iterator[Killer]:
    made = Killer(tmp_path)
    yield made
    for each in made.controllers:
        each.clean_up()


class Killer:
    """Starts jobs of two processes, each with one launcher, and kills one of its processes at a random moment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self.controllers: list[Controller] = []
        self.killed: dict[str, int] = {}

    def start(self, number: int, *, options: tuple[str, ...], script: dict[str, object]) -> Controller:
        launcher = LAUNCHERS[number % len(LAUNCHERS)]
        axes = ("processes=2", "batch=8", f"launcher={launcher}")
        folder = self._folder / str(number)
        controller = Controller(folder, self._folder / "store", axes, options=options, script=script)
        with self._lock:
            self.controllers.append(controller)
        return controller.start()

    def kill_one(self, number: int) -> None:
        chance = random.Random(number)
        of_controller = chance.random() < 0.5
        # A daemon of a worker outlives a keeper that is killed itself; all else does not.
        script = dict(WITH_DAEMON) if of_controller else {"step_s": 0.002, "sleep": True, "warmup": []}
        controller = self.start(number, options=LONG, script=script)
        time.sleep(chance.uniform(0, LONGEST_S[LAUNCHERS[number % len(LAUNCHERS)]]))
        assert controller.process.poll() is None, controller.stderr
        victim = controller.process.pid if of_controller else self._another(controller, chance)
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        if victim != controller.process.pid:
            # What was killed may be no part of the job any more, or not yet; then it is ended by hand.
            with suppress(TimeoutError):
                self._wait_for_failure(controller)
            controller.process.terminate()
        controller.finish(timeout_s=PATIENCE_S)
        taken_s = seconds_until_gone(controller.mark)
        assert taken_s < SOON_S, [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in carrying(controller.mark)]
        assert "Traceback" not in controller.stderr
        with self._lock:
            kind = "controller" if of_controller else "other"
            self.killed[kind] = self.killed.get(kind, 0) + 1

    def _another(self, controller: Controller, chance: random.Random) -> int:
        others = [pid for pid in carrying(controller.mark) if pid != controller.process.pid]
        return chance.choice(others) if others else controller.process.pid

    def _wait_for_failure(self, controller: Controller) -> None:
        end_s = time.monotonic() + NOTICED_S
        while controller.process.poll() is None:
            if time.monotonic() > end_s:
                raise TimeoutError
            time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.deep)])
def test_a_team_is_killed_at_random_moments(killer: Killer, kills: int):
    with ThreadPoolExecutor(max_workers=3) as pool:
        for done in [pool.submit(killer.kill_one, number) for number in range(kills)]:
            done.result()
    assert sum(killer.killed.values()) == kills
    assert set(killer.killed) == {"controller", "other"}
    script: dict[str, object] = {"step_s": 0.001, "sleep": True}
    for afterwards in [killer.start(number, options=TINY, script=script) for number in range(len(LAUNCHERS))]:
        assert afterwards.finish() == 0, afterwards.stderr
        assert len(afterwards.acknowledged) == 1
        assert seconds_until_gone(afterwards.mark) < SOON_S
