"""A fitting interpreter is found where people have them, and what is missing is said in one line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from kitchen import OWN_PYTHON

from deepstone.environments.interpreters import find_interpreter
from deepstone.errors import MissingError


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, and no pyenv."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return folder


def stand_in(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


LINES = "echo 'is 3.5.{}'; echo can"


def test_this_one_if_it_fits(bare: Path) -> None:
    found = find_interpreter(["3.5", OWN_PYTHON], "torch@1")
    assert found.path == Path(sys.executable)
    assert found.version.startswith(f"{OWN_PYTHON}.")


def test_on_path_before_pyenv_and_the_newest_of_pyenv(bare: Path, tmp_path: Path) -> None:
    versions = tmp_path / "pyenv" / "versions"
    for patch in ("9", "10"):
        stand_in(versions / f"3.5.{patch}" / "bin" / "python", LINES.format(patch))
    assert find_interpreter(["3.5"], "torch@1").version == "3.5.10"
    on_path = stand_in(bare / "python3.5", LINES.format("2"))
    assert find_interpreter(["3.5"], "torch@1").path == on_path


def test_a_shim_that_leads_nowhere_is_passed_over(bare: Path, tmp_path: Path) -> None:
    stand_in(bare / "python3.5", "echo 'pyenv: python3.5: command not found' >&2; exit 127")
    good = stand_in(tmp_path / "pyenv" / "versions" / "3.5.9" / "bin" / "python", LINES.format("9"))
    assert find_interpreter(["3.5"], "torch@1").path == good


def test_one_of_another_version_than_its_name_is_passed_over(bare: Path) -> None:
    stand_in(bare / "python3.5", "echo 'is 3.4.9'; echo can")
    with pytest.raises(MissingError, match=r"no Python 3\.5 found"):
        find_interpreter(["3.5"], "torch@1")


def test_none_is_told_with_where_we_looked_and_what_to_do(bare: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingError) as error:
        find_interpreter(["3.5", "3.4"], "torch@1.1.0")
    told = str(error.value)
    for words in (
        "cannot make torch@1.1.0: no Python 3.5 or 3.4 found",
        "python3.5",
        "on PATH",
        str(tmp_path / "pyenv" / "versions"),
        "install python3.5",
        "deepstone env add torch --python PATH",
    ):
        assert words in told
    assert "\n" not in told


def test_one_without_venv_is_told_with_the_package(bare: Path) -> None:
    stand_in(bare / "python3.5", "echo 'is 3.5.2'; echo 'ImportError: no ensurepip' >&2; exit 1")
    with pytest.raises(MissingError, match=r"python3\.5 has no venv module.*apt install python3\.5-venv$"):
        find_interpreter(["3.5"], "torch@1")
