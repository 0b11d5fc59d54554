"""The limits of this process's control group: a container may use less than the host has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from deepstone.absent import Absent
from deepstone.measure.noise import QuotaReading

# Version 1 represents "no limit" as the largest multiple of the page size.
_NO_LIMIT_BYTES = 2**62


def cpu_quota_cores(root: Path = Path("/")) -> float | Absent:
    """Return the quota in cores; the tightest from our group up to the root counts."""
    quotas = [quota for folder in _folders(root, "cpu") if (quota := _quota_cores(folder)) is not None]
    return min(quotas) if quotas else Absent("the control group sets no CPU quota")


def quota_files(root: Path = Path("/")) -> tuple[Path, ...]:
    """Return the files for `quota_reading`: one for our group and for each ancestor that counts throttling."""
    files = (folder / "cpu.stat" for folder in _folders(root, "cpu"))
    return tuple(file for file in dict.fromkeys(files) if "nr_throttled" in _words(file))


def quota_reading(file: Path) -> QuotaReading | None:
    """Return None if the group is gone because our process moved to another one."""
    words = _words(file)
    counts = {name: int(number) for name, number in zip(words[::2], words[1::2], strict=False)}
    if "nr_throttled" not in counts:
        return None
    # Version 1 counts nanoseconds, version 2 microseconds.
    throttled_s = counts["throttled_time"] / 1e9 if "throttled_time" in counts else counts["throttled_usec"] / 1e6
    return QuotaReading(periods=counts["nr_periods"], throttled_periods=counts["nr_throttled"], throttled_s=throttled_s)


def memory_limit_bytes(root: Path = Path("/")) -> int | Absent:
    """Return the tightest limit from our group up to the root."""
    limits = [limit for folder in _folders(root, "memory") if (limit := _limit_bytes(folder)) is not None]
    return min(limits) if limits else Absent("the control group sets no memory limit")


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of our group and its ancestors, in version 2's tree and in this controller's tree of version 1.

    A container may see its group's path as the host names it but only its own tree, so some folders may not exist.
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
