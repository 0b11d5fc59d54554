from __future__ import annotations

from pathlib import Path

import pytest

from deepstone.absent import Absent
from deepstone.hardware.cgroup import cpu_quota_cores, memory_limit_bytes


def tree(root: Path, membership: str, files: dict[str, str]) -> Path:
    for path, text in {"proc/self/cgroup": membership, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_version_2_takes_the_tightest_limit_up_to_the_root(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        "0::/slurm/job_7/step_0\n",
        {
            "sys/fs/cgroup/slurm/job_7/step_0/cpu.max": "max 100000\n",
            "sys/fs/cgroup/slurm/job_7/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/slurm/cpu.max": "800000 100000\n",
            "sys/fs/cgroup/slurm/job_7/step_0/memory.max": "max\n",
            "sys/fs/cgroup/slurm/job_7/memory.max": "8589934592\n",
        },
    )
    assert cpu_quota_cores(root) == 1.5
    assert memory_limit_bytes(root) == 8 * 2**30


def test_version_1_keeps_a_tree_per_controller(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        "4:memory:/box\n3:cpuset:/\n1:cpu,cpuacct:/box\n0::/\n",
        {
            "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "400000\n",
            "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "1073741824\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert cpu_quota_cores(root) == 4.0
    assert memory_limit_bytes(root) == 2**30


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
