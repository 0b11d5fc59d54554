"""The runner's tests know the scripted backend, the store's tests know stores."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "runner"))

from fake_jobs import Script, set_script

from deepstone.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Sets what the scripted backend plays."""
    return lambda **keys: set_script(monkeypatch, **keys)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights and ceilings of tests are not those of whoever runs them."""
    monkeypatch.setenv("DEEPSTONE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
