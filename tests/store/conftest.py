"""A fresh store, a small disk of its own, and processes that use a store."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from store_kit import SmallDisk, Spawn, mounted_small_disk

from deepstone.store.store import Store

TESTS = Path(__file__).resolve().parent.parent


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts Python programs that can import the factory; none outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str, *arguments: object) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        argv = [sys.executable, "-c", program, *map(str, arguments)]
        process = subprocess.Popen(
            argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted_small_disk(tmp_path / "disk", size="256k") as disk:
        yield disk


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes]]:
    """Every file below a folder and what it holds."""

    def read(folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    return read
