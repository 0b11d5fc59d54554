"""The store's tests have a disk small enough to fill, and the runner's tests know how to find what a job started."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "runner"))
sys.path.append(str(Path(__file__).parents[1] / "store"))

from store_kit import SmallDisk, mount


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Room for a few records, not for many."""
    root = tmp_path / "disk"
    root.mkdir()
    try:
        mount("-t", "tmpfs", "-o", "size=512k,mode=777", "tmpfs", root)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"mounting needs root: {error}")
    try:
        yield SmallDisk(root)
    finally:
        subprocess.run(["umount", "--lazy", str(root)], check=True, timeout=20)
