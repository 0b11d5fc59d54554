"""Scripts for the fake backend, a mark that its processes carry, and a store that takes their records."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_jobs import MARK_VARIABLE, Script, end_all, set_script

from deepstone.backends.before_import import FAKE_SCRIPT
from deepstone.store.store import Store


@pytest.fixture(autouse=True, scope="session")
def weights_of_our_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEPSTONE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv(FAKE_SCRIPT, '{"seed": 1}')
        yield


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Script:
    """Sets what the fake backend of the next workers plays; launches that are to differ do so by their order."""

    def play(**script: Any) -> None:
        counted = {"launches": str(tmp_path / "launches")} if "launch_noise" in script else {}
        set_script(monkeypatch, **counted, **script)

    return play


@pytest.fixture
def marked_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A mark in the environment of every process that this test starts."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK_VARIABLE, mark)
    yield from (mark for _ in end_all(mark))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")
