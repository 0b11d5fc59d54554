"""Memory cgroups for tests, of version 1 or 2: a limit that the kernel enforces by killing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from memory_kills import a_kill_meanwhile


@contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[Path]:
    """A folder whose cgroup.procs takes processes in; skips the test where none can be made."""
    groups = dict(line.split(":")[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    first = "memory" in groups
    parent = Path("/sys/fs/cgroup/memory") / groups["memory"].lstrip("/") if first else Path("/sys/fs/cgroup")
    folder = parent / f"deepstone-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"cannot make a memory cgroup: {error}")
    try:
        limit = folder / ("memory.limit_in_bytes" if first else "memory.max")
        if not limit.exists():
            pytest.skip(f"no memory controller in {folder}")
        limit.write_text(str(limit_bytes))
        for swap, value in (("memory.memsw.limit_in_bytes", str(limit_bytes)), ("memory.swap.max", "0")):
            with suppress(OSError):  # no swap accounting
                (folder / swap).write_text(value)
        with a_kill_meanwhile():
            yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """The kernel lets go of a cgroup a moment after its last process."""
    end_s = time.monotonic() + 10
    while folder.exists() and time.monotonic() < end_s:
        with suppress(OSError):
            folder.rmdir()
        time.sleep(0.01)
