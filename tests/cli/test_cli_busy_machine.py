"""What a user is told of others on the machine: before anything is measured, and in the record."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_kit import Cli

RUN = ("run", "cifarnet", "framework=fake", "batch=8", "--budget", 0.5, "--json")
SPINNER = "import time\nprint(flush=True)\nend = time.monotonic() + 100\nwhile time.monotonic() < end: pass"
ON_GPU = ("run", "cifarnet", "framework=fake", "device=gpu", "batch=8", "--budget", 0.5, "--json")


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({}, None),
        ({"FAKE_NVML_UTILIZATION": "98"}, "98 % busy before our worker started and 98 % busy after it ended"),
        ({"FAKE_NVML_PROCESSES": "1"}, "pid 1000 has a compute context on it"),
    ],
)
def test_another_process_on_the_gpu(cli: Cli, driver: str, others: dict[str, str], words: str | None) -> None:
    done = cli(*ON_GPU, LD_LIBRARY_PATH=driver, **others).assert_ok()
    record = done.json
    details = [doubt["detail"] for doubt in record["doubts"] if doubt["code"] == "gpu_shared"]
    assert len(details) == (words is not None)
    assert words is None or words in details[0]
    assert ("before measuring: other processes use the GPU" in done.err) == (words is not None)
    assert record["environment"]["machine"]["gpus"][0]["mig"] is False
    assert record["environment"]["machine"]["gpus"][0]["mps"] is False


@pytest.fixture
def spinner() -> Iterator[None]:
    """Keeps a core busy; the machine of the tests may have others."""
    with subprocess.Popen([sys.executable, "-c", SPINNER], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.kill()


def test_others_on_the_cores_are_told_before_measuring(cli: Cli, spinner: None) -> None:
    process = subprocess.run(
        cli.command(*RUN), env=cli.environment(), capture_output=True, text=True, check=True, cwd=cli.home
    )
    assert process.stderr.startswith("before measuring: other processes ")


def test_a_machine_that_does_not_become_quiet_is_not_measured(cli: Cli, spinner: None) -> None:
    done = cli(*RUN, "--wait-until-quiet", "1.5 s")
    assert done.code == 1
    waiting, refused = done.err.splitlines()
    assert waiting.startswith("waiting for a quiet machine, 1.5 s at most: other processes ")
    assert refused.startswith("deepstone: the machine did not become quiet within 1.5 s: other processes ")
    assert done.out == ""
    assert cli.runs() == []


def test_a_study_says_how_to_go_on(cli: Cli, spinner: None, tmp_path: Path) -> None:
    study = tmp_path / "small.toml"
    study.write_text('[effort]\nrepetitions = 1\n[[jobs]]\nmodel = "cifarnet"\nframework = "fake"\n')
    done = cli("study", study, "--wait-until-quiet", "1 s")
    assert done.code == 1
    assert done.err.splitlines()[-1].endswith(f"go on with: deepstone study {study} --wait-until-quiet '1 s'")
    assert cli.runs() == []


def test_a_search_says_how_to_go_on(cli: Cli, spinner: None) -> None:
    words = ("tune", "cifarnet", "framework=fake", "batch=8", "--budget", "20s", "--json", "--wait-until-quiet", "1 s")
    done = cli(*words)
    assert done.code == 1
    told = "every look is stored; go on with: deepstone tune cifarnet framework=fake batch=8 --budget 20s "
    assert done.err.splitlines()[-1].endswith(f"{told}--wait-until-quiet '1 s' --json")
    assert not list(cli.store.glob("claims/*.claim"))


def test_a_busy_gpu_is_waited_for(cli: Cli, driver: str) -> None:
    done = cli(*ON_GPU, "--wait-until-quiet", "1 s", LD_LIBRARY_PATH=driver, FAKE_NVML_UTILIZATION="60")
    assert done.code == 1
    assert "others keep the GPU 60 % busy" in done.err


@pytest.mark.parametrize("words", [RUN, ("study", "quick"), ("compare", "cifarnet", "--", "layout=nhwc")])
def test_a_wait_that_is_no_time_is_refused(cli: Cli, words: tuple[object, ...]) -> None:
    cli(*words, "--wait-until-quiet", "soon").assert_error(2, "soon: is no time")
