"""A signal at any moment of a command's life is told in one line: also while it imports, cleans up, or leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

MAIN = "from deepstone.cli.main import main; main()"
HERE = "import sys, time; print('here', flush=True); time.sleep(600)"

IMPORTING = MAIN  # with a package in the way that takes its time
COLLECTING = f"""
import deepstone.cli.commands as commands
class Slow:
    def __del__(self):
        {HERE}
commands._invoke = lambda command: Slow() and 0
{MAIN}
"""
LEAVING = f"""
import atexit
def leave():
    {HERE}
atexit.register(leave)
{MAIN}
"""
IN_C_CODE = f"""
import ctypes
import deepstone.cli.commands as commands
@ctypes.CFUNCTYPE(None)
def called():
    {HERE}
commands._invoke = lambda command: called() or 0
{MAIN}
"""
SWALLOWED = f"""
import deepstone.cli.commands as commands
from deepstone.cli.progress import Bar
def invoke(command):
    try:
        {HERE}
    except BaseException:
        pass
    if sys.argv[1] == 'tell':
        Bar(None, None, 1).advance('measuring', 0.5)
        print('told')
    return 0
commands._invoke = invoke
import sys
{MAIN}
"""
CLEANING_UP = f"""
import deepstone.cli.commands as commands
def invoke(command):
    try:
        {HERE}
    finally:
        {HERE}
commands._invoke = invoke
{MAIN}
"""


def start(program: str, *words: str, path: Path) -> subprocess.Popen[str]:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen(
        [sys.executable, "-c", program, *words],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def interrupt(process: subprocess.Popen[str], number: int, times: int = 1) -> tuple[int, str]:
    assert process.stdout is not None
    for _ in range(times):
        while process.stdout.readline() != "here\n":
            assert process.poll() is None
        process.send_signal(number)
    _, err = process.communicate(timeout=200)
    return process.returncode, err


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_while_it_still_imports(tmp_path: Path, number: int, code: int, word: str) -> None:
    (tmp_path / "typer.py").write_text(HERE)
    assert interrupt(start(IMPORTING, "models", path=tmp_path), number) == (code, f"deepstone: {word}\n")


@pytest.mark.parametrize("program", [COLLECTING, LEAVING, IN_C_CODE], ids=["garbage", "leaving", "C code"])
def test_where_python_would_print_a_traceback(tmp_path: Path, program: str) -> None:
    found = interrupt(start(program, "--version", path=tmp_path), signal.SIGINT)
    assert found == (130, "deepstone: interrupted\n")


@pytest.mark.parametrize("word", ["end", "tell"])
def test_where_code_of_others_drops_it(tmp_path: Path, word: str) -> None:
    """As C code does that looks for an attribute: it is raised again between two blocks, and at the end."""
    found = interrupt(start(SWALLOWED, word, path=tmp_path), signal.SIGINT)
    assert found == (130, "deepstone: interrupted; runs already stored are kept\n")


def test_a_second_signal_does_not_wait_for_the_cleaning_up(tmp_path: Path) -> None:
    found = interrupt(start(CLEANING_UP, "--version", path=tmp_path), signal.SIGINT, times=2)
    assert found == (130, "deepstone: interrupted\n")
