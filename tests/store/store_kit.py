"""What the store's tests share: programs that use a store, and a disk small enough to fill."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest


class Spawn(Protocol):
    def __call__(self, program: str, *arguments: object) -> subprocess.Popen[str]: ...


def finished(process: subprocess.Popen[str]) -> str:
    """What a program printed, once it has ended well."""
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    return output


def say_go(process: subprocess.Popen[str]) -> None:
    """Programs that must begin together wait for a line."""
    assert process.stdin
    process.stdin.write("go\n")
    process.stdin.flush()


class SmallDisk:
    """A small file system that can be filled and made read-only."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def fill(self) -> None:
        with (self.root / "ballast").open("ab", buffering=0) as file:
            for size in (4096, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    continue

    def make_room(self) -> None:
        (self.root / "ballast").unlink()

    def make_read_only(self) -> None:
        mount("-o", "remount,ro", self.root)


@contextmanager
def mounted_small_disk(root: Path, *, size: str) -> Iterator[SmallDisk]:
    """A tmpfs of that size at `root`; the test is skipped where it cannot be mounted."""
    root.mkdir()
    try:
        mount("-t", "tmpfs", "-o", f"size={size},mode=777", "tmpfs", root)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"mounting needs root: {error}")
    try:
        yield SmallDisk(root)
    finally:
        subprocess.run(["umount", "--lazy", str(root)], check=True, timeout=200)


def mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True, capture_output=True, timeout=200)
