"""Data on standard output, messages and progress on standard error; readers and users may leave at any time."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest
from cli_kit import Cli, first_line, script

RUN = ("run", "cifarnet", "framework=fake", "batch=8", "--budget", 1)


def test_a_bar_is_drawn_where_standard_error_is_a_terminal(cli: Cli) -> None:
    done = cli.on_terminal(*RUN, "--json", error_too=True)
    assert done.code == 0
    assert json.loads(done.out)["outcome"] == "ok"
    assert "cifarnet batch=8 train: starting" in done.err
    assert "measuring" in done.err
    assert "━" in done.err or "-" in done.err
    assert f"stored {cli.runs()[0].stem}" in done.err


def test_no_bar_without_a_terminal(cli: Cli) -> None:
    done = cli(*RUN, "--json").assert_ok()
    assert done.err == f"stored {cli.runs()[0].stem}\n"
    assert done.json["outcome"] == "ok"


@pytest.mark.parametrize("words", [("models",), ("models", "resnet5000", "--json"), ("models", "resnet5000")])
def test_a_reader_that_leaves_early(reader: Cli, words: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        reader.command(*words), env=reader.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=200) == 0
    process.stderr.close()


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_ends_the_run_and_keeps_what_is_stored(cli: Cli, number: int, code: int, word: str) -> None:
    slow = {"sleep": True, "step_s": 0.2, "warmup": [1]}
    process = subprocess.Popen(
        cli.command("run", "cifarnet", "framework=fake", "batch=8,16"),
        env=cli.environment(DEEPSTONE_FAKE=script(by={"batch=16": slow})),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert first_line(process.stderr).startswith("2 jobs, 1 launch each: about ")
    stored = first_line(process.stderr)
    assert stored.startswith("stored ")
    assert ": batch=8: " in stored
    assert " images/s (" in stored
    time.sleep(0.5)  # well into the second
    process.send_signal(number)
    out, err = process.communicate(timeout=200)
    assert process.returncode == code
    assert err == f"deepstone: {word}; runs already stored are kept\n"
    assert "cifarnet · framework=fake" in out
    assert cli.runs()[0].stem in out.splitlines()[-1]  # the table of what was measured so far
    assert [json.loads(path.read_text())["record"]["workload"]["batch"] for path in cli.runs()] == [8]


def test_a_model_file_that_prints_does_not_spoil_the_data(cli: Cli) -> None:
    (cli.home / "loud.py").write_text(
        "from deepstone.models.chains import cifarnet\nprint('hello')\ndef make():\n    return cifarnet()\n"
    )
    done = cli("models", "loud.py:make", "--json").assert_ok()
    assert done.json["parameters"] == 89_578
    assert done.err == "hello\n"


def test_the_time_is_stated_before_several_launches(cli: Cli) -> None:
    done = cli("run", "cifarnet", "framework=fake", "batch=8,16", "--launches", 2, "--budget", 3).assert_ok()
    assert done.err.splitlines()[0] == (
        "2 jobs, 2 launches each: about 14 s on a quiet machine if all budgets are spent (4 × 3 s), start-up included"
    )
