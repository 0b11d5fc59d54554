from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from deepstone.absent import Absent
from deepstone.hardware.cgroup import cpu_quota_cores, memory_limit_bytes, quota_files, quota_reading
from deepstone.measure.noise import QuotaReading

RECORDED_1 = "nr_periods 120\nnr_throttled 30\nthrottled_time 2500000000\nnr_bursts 0\nburst_time 0\n"
RECORDED_2 = (
    "usage_usec 9000\nuser_usec 8000\nsystem_usec 1000\nnr_periods 120\nnr_throttled 30\nthrottled_usec 2500000\n"
)
QUOTA_SPINNER = """
import os, sys, time
from deepstone.hardware.noise import Noise
from deepstone.measure.noise import noise_doubts
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
noise = Noise([])
before = noise.now()
end_s = time.monotonic() + 1.0
while time.monotonic() < end_s:
    pass
print(*[doubt.code for doubt in noise_doubts(before, noise.now())])
"""


def tree(root: Path, membership: str, files: dict[str, str]) -> Path:
    for path, text in {"proc/self/cgroup": membership, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


VERSION_1 = {
    "cpu,cpuacct/box/cpu.cfs_quota_us": "400000",
    "cpu,cpuacct/box/cpu.cfs_period_us": "100000",
    "memory/box/memory.limit_in_bytes": "1073741824",
    "memory/memory.limit_in_bytes": "9223372036854771712",
}
VERSION_2 = {
    "slurm/job_7/step_0/cpu.max": "max 100000",
    "slurm/job_7/cpu.max": "150000 100000",
    "slurm/cpu.max": "800000 100000",
    "slurm/job_7/step_0/memory.max": "max",
    "slurm/job_7/memory.max": "8589934592",
}


@pytest.mark.parametrize(
    ("membership", "limits", "cores", "memory_bytes"),
    [
        pytest.param("0::/slurm/job_7/step_0\n", VERSION_2, 1.5, 8 * 2**30, id="the tightest up to the root"),
        pytest.param("4:memory:/box\n3:cpuset:/\n1:cpu,cpuacct:/box\n0::/\n", VERSION_1, 4.0, 2**30, id="version 1"),
    ],
)
def test_limits(tmp_path: Path, membership: str, limits: dict[str, str], cores: float, memory_bytes: int) -> None:
    root = tree(tmp_path, membership, {f"sys/fs/cgroup/{file}": f"{limit}\n" for file, limit in limits.items()})
    assert cpu_quota_cores(root) == cores
    assert memory_limit_bytes(root) == memory_bytes


def test_a_container_that_sees_its_group_as_the_root_is_limited_too(tmp_path: Path) -> None:
    root = tree(tmp_path, "0::/docker/0123abc\n", {"sys/fs/cgroup/cpu.max": "200000 100000\n"})
    assert cpu_quota_cores(root) == 2.0


@pytest.mark.parametrize(
    ("membership", "files"),
    [
        ("0::/\n", {}),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n", "sys/fs/cgroup/memory.max": "max\n"}),
        (
            "1:cpu:/\n",
            {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"},
        ),
        ("4:memory:/\n", {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}),
    ],
)
def test_no_limit_is_absent(tmp_path: Path, membership: str, files: dict[str, str]) -> None:
    root = tree(tmp_path, membership, files)
    assert isinstance(cpu_quota_cores(root), Absent)
    assert isinstance(memory_limit_bytes(root), Absent)


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert isinstance(cpu_quota_cores(tmp_path), Absent)
    assert isinstance(memory_limit_bytes(tmp_path), Absent)


@pytest.mark.parametrize(
    ("membership", "file", "text"),
    [
        ("0::/box\n", "sys/fs/cgroup/box/cpu.stat", RECORDED_2),
        ("1:cpu,cpuacct:/box\n0::/\n", "sys/fs/cgroup/cpu,cpuacct/box/cpu.stat", RECORDED_1),
    ],
)
def test_what_a_quota_has_done(tmp_path: Path, membership: str, file: str, text: str) -> None:
    root = tree(tmp_path, membership, {file: text, "sys/fs/cgroup/cpu.stat": "usage_usec 9000\n"})
    [found] = quota_files(root)
    assert quota_reading(found) == QuotaReading(periods=120, throttled_periods=30, throttled_s=2.5)
    found.unlink()
    assert quota_reading(found) is None


def test_a_group_that_counts_nothing_is_not_read(tmp_path: Path) -> None:
    root = tree(tmp_path, "0::/box\n", {"sys/fs/cgroup/box/cpu.stat": "usage_usec 9000\n"})
    assert quota_files(root) == ()


@pytest.fixture
def tight_group() -> Iterator[Path]:
    """A real control group with a tenth of a core."""
    groups = dict(line.split(":")[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    first = next((names for names in groups if "cpu" in names.split(",")), None)
    tree = Path("/sys/fs/cgroup") / (first or "")
    folder = tree / groups[first or ""].lstrip("/") / f"deepstone-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"cannot make a control group: {error}")
    try:
        limit = folder / ("cpu.max" if first is None else "cpu.cfs_quota_us")
        if not limit.exists():
            pytest.skip(f"no cpu controller in {folder}")
        limit.write_text("10000 100000" if first is None else "10000")
        yield folder
    finally:
        end_s = time.monotonic() + 10
        while folder.exists() and time.monotonic() < end_s:
            with suppress(OSError):
                folder.rmdir()
            time.sleep(0.01)


def test_a_real_quota_is_noticed(tight_group: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", QUOTA_SPINNER, str(tight_group)], capture_output=True, text=True, check=True
    )
    assert "cpu_quota" in ran.stdout.split()
