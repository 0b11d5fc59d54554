"""`deepstone env add` in trouble: interrupted and killed in the middle of a download, two at once, out of disk.

Whatever happens, an environment is there and works, or nothing of it is used; and adding it again works.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from controllers import MarkedProcess
from fake_jobs import SOON_S, carrying, seconds_until_gone
from kitchen import Kitchen, Stall, make_copying_python, stalling_server
from store_kit import mounted_small_disk

pytestmark = pytest.mark.slow
NAME = "torch@9.9.9"
# As `python -m deepstone`, but for the interpreter that it makes venvs with.
WITH_PYTHON = "import sys; sys.executable = sys.argv.pop(1); from deepstone.cli.main import main; main()"


@pytest.fixture
def kitchen(tmp_path: Path) -> Kitchen:
    kitchen = Kitchen(folder=tmp_path)
    kitchen.torch()
    return kitchen


@pytest.fixture
def stall(kitchen: Kitchen) -> Iterator[Stall]:
    """A recipe whose second package stays half downloaded until it is told to go on."""
    with stalling_server(kitchen.wheels, "torch-9.9.9") as stall:
        kitchen.recipe(steps=[kitchen.step("numpy==0.1"), kitchen.step("torch==9.9.9", links=stall.url)])
        yield stall


@pytest.fixture(scope="module")
def copying_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_copying_python(tmp_path_factory.mktemp("copied"))


@pytest.fixture
def add(kitchen: Kitchen, copying_python: Path) -> Iterator[Callable[..., MarkedProcess]]:
    """Start `deepstone env add`."""
    made: list[MarkedProcess] = []

    def start(name: str, *, copied: bool = True) -> MarkedProcess:
        """With a copied venv, for tests of what comes after it."""
        python = str(copying_python) if copied else sys.executable
        words = ["-c", WITH_PYTHON, python, "env", "add", name]
        made.append(MarkedProcess(folder=kitchen.folder, words=words, variables=kitchen.variables).start())
        return made[-1]

    yield start
    for each in made:
        each.clean_up()


def assert_works(kitchen: Kitchen, name: str = NAME) -> None:
    manifest = json.loads((kitchen.root / name / "environment.json").read_text())
    program = "import torch, numpy; print(torch.__version__)"
    done = subprocess.run([manifest["python"], "-c", program], capture_output=True, text=True, check=True)
    assert f"torch@{done.stdout.strip()}" == name


def listed_environments(kitchen: Kitchen) -> list[str]:
    listed = subprocess.run(
        [sys.executable, "-m", "deepstone", "env", "list", "--json"],
        env={**os.environ, **kitchen.variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return [each["name"] for each in json.loads(listed.stdout)["environments"]]


@pytest.mark.deep  # test_what_pip_has_started_ends_too stops one as well
@pytest.mark.parametrize(
    ("number", "code", "says"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
    ids=["SIGINT", "SIGTERM"],
)
def test_stopped_in_the_middle_of_a_download(kitchen: Kitchen, stall: Stall, add, number: int, code: int, says: str):
    adding = add("torch")
    adding.wait_for(stall.reached.is_set)
    assert kitchen.leftovers() == [NAME]
    start_s = time.monotonic()
    adding.process.send_signal(number)
    assert adding.finish() == code
    assert time.monotonic() - start_s < 60
    assert carrying(adding.mark) == []
    assert kitchen.leftovers() == []
    last = adding.stderr.splitlines()[-1]
    assert last == f"deepstone: {says}; environments already made are kept, and nothing half-made"
    assert "Traceback" not in adding.stderr
    stall.go_on.set()
    again = add("torch")
    assert again.finish() == 0, again.stderr
    assert_works(kitchen)


def test_impatience_leaves_nothing_that_is_used(kitchen: Kitchen, stall: Stall, add):
    """A second Ctrl-C does not wait for the cleaning up, so a folder may be left, as after a kill."""
    adding = add("torch")
    adding.wait_for(stall.reached.is_set)
    for _ in range(5):
        adding.process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    assert adding.finish() in (130, -signal.SIGINT)
    assert seconds_until_gone(adding.mark) < SOON_S
    assert not (kitchen.root / NAME / "environment.json").exists()
    assert set(kitchen.leftovers()) <= {NAME}
    assert NAME not in listed_environments(kitchen)


def test_killed_in_the_middle_of_a_download(kitchen: Kitchen, stall: Stall, add):
    adding = add("torch")
    adding.wait_for(stall.reached.is_set)
    adding.process.kill()
    adding.process.wait()
    assert seconds_until_gone(adding.mark) < SOON_S  # pip goes with it
    assert kitchen.leftovers() == [NAME]
    assert NAME not in listed_environments(kitchen)
    stall.go_on.set()
    again = add("torch")
    assert again.finish() == 0, again.stderr
    assert_works(kitchen)
    assert kitchen.leftovers() == [NAME]


@pytest.mark.parametrize(
    "delays_s", [(0.3, 1.6), pytest.param((0.2, 0.5, 1.0, 1.6, 2.4, 3.4), marks=pytest.mark.deep)], ids=["two", "six"]
)
def test_killed_at_any_moment(kitchen: Kitchen, add, delays_s: tuple[float, ...]):
    """From the first folder to the last file. A second one is then made beside what the killed left."""
    for delay_s in delays_s:
        adding = add("torch", copied=False)
        time.sleep(delay_s)
        adding.process.kill()
        adding.process.wait()
        assert seconds_until_gone(adding.mark) < SOON_S
        if (kitchen.root / NAME / "environment.json").exists():
            assert_works(kitchen)
    last = add("torch", copied=False)
    assert last.finish() == 0, last.stderr
    assert_works(kitchen)
    assert kitchen.leftovers() == [NAME]


def test_what_pip_has_started_ends_too(kitchen: Kitchen, add):
    """A package that must be built: its setup.py runs in a process of pip's, and never ends."""
    folder = kitchen.wheels / "slow-1.0"
    folder.mkdir()
    (folder / "setup.py").write_text("import os, time\nopen(os.environ['STARTED'], 'w').close()\ntime.sleep(600)\n")
    subprocess.run(["tar", "czf", "slow-1.0.tar.gz", "slow-1.0"], cwd=kitchen.wheels, check=True)
    started = kitchen.folder / "started"
    kitchen.recipe(steps=[kitchen.step("slow==1.0")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STARTED", str(started))
        patch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # pip's word for: without isolation
        adding = add("torch")
    adding.wait_for(started.exists)
    assert len(carrying(adding.mark)) >= 3
    adding.process.send_signal(signal.SIGINT)
    assert adding.finish() == 130
    assert carrying(adding.mark) == []
    assert kitchen.leftovers() == []
    last = adding.stderr.splitlines()[-1]
    assert last == "deepstone: interrupted; environments already made are kept, and nothing half-made"
    assert "Traceback" not in adding.stderr


def test_two_at_once_make_it_once(kitchen: Kitchen, stall: Stall, add):
    first = add("torch")
    first.wait_for(stall.reached.is_set)
    second = add("torch")
    second.wait_for(lambda: f"another deepstone makes {NAME}; waiting\n" in second.stderr)
    made = kitchen.root / NAME / "venv" / "bin" / "python"
    before = made.lstat().st_ino
    stall.go_on.set()
    assert [first.finish(), second.finish()] == [0, 0]
    assert f"made {NAME} " in first.stderr
    assert f"{NAME} is there already" in second.stderr
    assert made.lstat().st_ino == before
    assert_works(kitchen)


@pytest.mark.deep
def test_when_the_first_is_killed_the_second_makes_it(kitchen: Kitchen, stall: Stall, add):
    first = add("torch")
    first.wait_for(stall.reached.is_set)
    second = add("torch")
    second.wait_for(lambda: "waiting" in second.stderr)
    stall.go_on.set()
    first.process.kill()
    assert second.finish() == 0, second.stderr
    assert f"made {NAME} " in second.stderr
    assert_works(kitchen)


@pytest.mark.deep
def test_different_ones_do_not_wait_for_each_other(kitchen: Kitchen, stall: Stall, add):
    kitchen.torch("9.9.8")
    first = add("torch")
    first.wait_for(stall.reached.is_set)
    other = add("torch@9.9.8")
    assert other.finish() == 0, other.stderr
    assert_works(kitchen, "torch@9.9.8")
    stall.go_on.set()
    assert first.finish() == 0
    assert_works(kitchen)


class TestDisk:
    @pytest.fixture
    def kitchen(self, tmp_path: Path) -> Kitchen:
        """Wheels that need more room than there is, and a recipe that does not say so."""
        kitchen = Kitchen(folder=tmp_path)
        kitchen.wheel("numpy", "0.1")
        kitchen.wheel("torch", "9.9.9", {"torch/__init__.py": "__version__ = '9.9.9'", "torch/large": bytes(2**26)})
        kitchen.recipe(size_bytes=1_000_000)
        return kitchen

    @pytest.mark.parametrize("size", ["4m", "64m"], ids=["while the venv is made", "while pip unpacks"])
    def test_it_fills_up_on_the_way(self, kitchen: Kitchen, add, size: str):
        with mounted_small_disk(kitchen.root, size=size):
            adding = add("torch", copied=False)
            assert adding.finish() == 3, adding.stderr
            last = adding.stderr.splitlines()[-1]
            assert last == (
                f"deepstone: cannot make {NAME} in {kitchen.root}: no space left on device; "
                "make room, or set DEEPSTONE_ENVIRONMENTS to another folder"
            )
            assert kitchen.leftovers() == []

    def test_it_is_read_only(self, kitchen: Kitchen, add):
        with mounted_small_disk(kitchen.root, size="1m") as disk:
            disk.make_read_only()
            adding = add("torch")
            assert adding.finish() == 3
            assert "read-only file system; set DEEPSTONE_ENVIRONMENTS to another folder" in adding.stderr
