"""The store's tests have a disk small enough to fill, and the runner's tests know how to find what a job started."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "runner"))
sys.path.append(str(Path(__file__).parents[1] / "store"))

from store_kit import SmallDisk, mounted_small_disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Room for a few records, not for many."""
    with mounted_small_disk(tmp_path / "disk", size="512k") as disk:
        yield disk
