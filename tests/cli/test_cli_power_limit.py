"""`power_limit` as a user types it, on a driver in which nothing is real: it is set, told, and put back, whatever ends.

fake_nvml.c has the limit of a board in a file, because one process sets it and another puts it back.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from backends.tiny_jobs import tiny_job
from cli_kit import Cli, script

from deepstone.runner.compare import fit_together

RUN = ("run", "cifarnet", "framework=fake", "device=gpu", "batch=8", "power_limit=300", "--budget", 0.5, "--json")
PATIENCE_S = 120


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """The file of the limit, in milliwatts; the board begins with 500 W."""
    path = tmp_path / "power"
    path.write_text("500000")
    return path


def test_it_is_set_read_back_and_put_back(cli: Cli, driver: str, board: Path):
    record = cli(*RUN, LD_LIBRARY_PATH=driver, FAKE_NVML_POWER=str(board)).assert_ok().json
    assert record["setup"]["effective"]["power_limit"] == {"value": 300, "source": "observed"}
    assert board.read_text() == "500000"


def test_compared_sides_never_run_under_the_limit_of_the_other():
    """The limit is the board's, so their processes take turns."""
    plain, limited = (tiny_job("fake", device="gpu:0", power_limit=watts) for watts in ("auto", 300))
    assert fit_together(plain, plain)
    assert not fit_together(plain, limited)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_it_is_put_back_when_deepstone_is_killed(cli: Cli, driver: str, board: Path, number: signal.Signals):
    slow = script(step_s=0.2, sleep=True)
    environment = cli.environment(LD_LIBRARY_PATH=driver, FAKE_NVML_POWER=str(board), DEEPSTONE_FAKE=slow)
    words = [word if word != 0.5 else 60 for word in RUN]
    with subprocess.Popen(cli.command(*words), env=environment, cwd=cli.home, stdout=-1, stderr=-1) as process:
        wait_until(lambda: board.read_text() == "300000")
        process.send_signal(number)
        process.communicate(timeout=PATIENCE_S)
    wait_until(lambda: board.read_text() == "500000")


def test_without_the_permission_it_is_missing_and_nothing_runs(cli: Cli, driver: str):
    cli(*RUN, LD_LIBRARY_PATH=driver).assert_error(4, "power_limit: NVML refused", "Insufficient Permissions", "root")


def test_a_limit_out_of_range_is_refused(cli: Cli, driver: str, board: Path):
    words = [word if word != "power_limit=300" else "power_limit=9000" for word in RUN]
    cli(*words, LD_LIBRARY_PATH=driver, FAKE_NVML_POWER=str(board)).assert_error(4, "Invalid Argument", "nvidia-smi")
    assert board.read_text() == "500000"


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="there is a GPU")  # noqa: PTH110
def test_where_there_is_no_driver_it_is_missing(cli: Cli):
    cli(*RUN).assert_error(4, "power_limit=300", "no NVIDIA driver here", "leave power_limit out")


def wait_until(holds) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.05)
