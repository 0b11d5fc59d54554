"""The suite repeats the few tests that failed beside others, alone; what fails again, or too many, still fails it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "test.sh"

STEADY = """
def test_steady():
    pass
"""

# It fails the first time, as one does for lack of a core.
UNSTEADY = """
import pathlib, pytest

@pytest.mark.parametrize("name", {names!r})
def test_unsteady(name):
    there = pathlib.Path("ran-" + name[0])
    ran, _ = there.exists(), there.touch()
    assert ran
"""

BROKEN = """
def test_broken():
    assert False
"""


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (folder / "test_it.py").write_text(text, encoding="utf-8")
    line = [str(SCRIPT), sys.executable, "-n", "2"]
    return subprocess.run(line, cwd=folder, capture_output=True, encoding="utf-8", timeout=300)


def test_one_that_passes_alone_is_named_and_fails_nothing(tmp_path: Path):
    done = run(tmp_path, STEADY + UNSTEADY.format(names=["a b", "ü [c]"]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "UNSTEADY" in done.stdout
    assert "test_it.py::test_unsteady[a b]" in done.stdout


@pytest.mark.parametrize("text", [BROKEN + UNSTEADY.format(names=["a"]), UNSTEADY.format(names=["a", "b", "c", "d"])])
def test_what_fails_again_or_is_too_many_fails_it(tmp_path: Path, text: str):
    assert run(tmp_path, STEADY + text).returncode == 1


def test_a_suite_that_passes_runs_once(tmp_path: Path):
    done = run(tmp_path, STEADY)
    assert done.returncode == 0
    assert "alone" not in done.stdout
