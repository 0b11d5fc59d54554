from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kitchen import OWN_PYTHON, Kitchen

from deepstone.environments import interpreters


@pytest.fixture
def kitchen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kitchen:
    """Recipes and environments of this test alone."""
    kitchen = Kitchen(folder=tmp_path)
    kitchen.recipes.mkdir()
    for name, value in kitchen.variables.items():
        monkeypatch.setenv(name, value)
    return kitchen


@pytest.fixture(scope="session")
def copying_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter whose `-m venv` copies a venv that was made once: to make one takes seconds, most for pip."""
    folder = tmp_path_factory.mktemp("copied")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    script = folder / "python"
    copy = f'if [ "$1 $2" = "-m venv" ]; then exec cp -r {folder}/venv "$3"; fi'
    script.write_text(f'#!/bin/sh\n{copy}\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return script


@pytest.fixture
def copied_venvs(copying_python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on Deepstone finds that interpreter."""

    def candidates(version: str) -> Iterator[Path]:
        if version == OWN_PYTHON:
            yield copying_python

    monkeypatch.setattr(interpreters, "_candidates", candidates)
