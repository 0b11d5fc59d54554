from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kitchen import OWN_PYTHON, Kitchen, make_copying_python

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
    return make_copying_python(tmp_path_factory.mktemp("copied"))


@pytest.fixture
def copied_venvs(copying_python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on Deepstone finds that interpreter."""

    def candidates(version: str) -> Iterator[Path]:
        if version == OWN_PYTHON:
            yield copying_python

    monkeypatch.setattr(interpreters, "_candidates", candidates)
