"""What the control group grants this process: a container on a large host owns less than the host shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from deepstone.absent import Absent

# Version 1 writes "no limit" as the largest multiple of the page size.
_NO_LIMIT_BYTES = 2**62


def cpu_quota_cores(root: Path = Path("/")) -> float | Absent:
    """Cores' worth of CPU time per second; the tightest quota from our group up to the root counts."""
    quotas = [quota for folder in _folders(root, "cpu") if (quota := _quota_cores(folder)) is not None]
    return min(quotas) if quotas else Absent("the control group sets no CPU quota")


def memory_limit_bytes(root: Path = Path("/")) -> int | Absent:
    """The tightest limit from our group up to the root."""
    limits = [limit for folder in _folders(root, "memory") if (limit := _limit_bytes(folder)) is not None]
    return min(limits) if limits else Absent("the control group sets no memory limit")


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """The folders of our group and of all above it, in version 2's tree and in this controller's tree of version 1.

    A container may see its group's path as the host names it and the tree as its own, so some may not be there.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        tree = root / "sys/fs/cgroup" / controllers
        if controllers and not tree.is_dir():
            tree = root / "sys/fs/cgroup" / controller
        group = Path(path.lstrip("/"))
        yield from (tree / part for part in (group, *group.parents))


def _quota_cores(folder: Path) -> float | None:
    words = _words(folder / "cpu.max")
    if not words:
        words = _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
    if len(words) != 2 or words[0] in ("max", "-1"):
        return None
    return int(words[0]) / int(words[1])


def _limit_bytes(folder: Path) -> int | None:
    words = _words(folder / "memory.max") or _words(folder / "memory.limit_in_bytes")
    if not words or words[0] == "max":
        return None
    limit = int(words[0])
    return limit if limit < _NO_LIMIT_BYTES else None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
