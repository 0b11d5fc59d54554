from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from nvml_stand_in import FakeNvml

from deepstone.absent import Absent
from deepstone.hardware.gpu import GpuMonitor, mps_is_running
from deepstone.measure.noise import GpuUse, gpu_shared

MULTIPLIER = """
import torch
a = torch.rand(4096, 4096, device="cuda")
torch.cuda.synchronize()
print(flush=True)
while True:
    for _ in range(100):
        a @ a
    torch.cuda.synchronize()
"""


def look(device: str = "gpu:0", variables: Mapping[str, str] | None = None) -> GpuUse | Absent:
    with closing(GpuMonitor(device, variables or {})) as monitor:
        return monitor.use_by_others()


def seen(found: GpuUse | Absent) -> GpuUse:
    assert isinstance(found, GpuUse), found
    return found


def test_everything_that_others_do(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(processes=2, first_pid=4_000_000, drawing=1, used_bytes=5 * 2**30, mig=1)
    assert look() == GpuUse(
        uuid="GPU-74c2-0",
        compute_pids=(4_000_000, 4_000_001),
        graphics_pids=(2000,),
        utilization=0.97,
        used_bytes=5 * 2**30,
        mig=True,
        mps=False,
    )
    assert fake_nvml.users == 0


def test_our_own_last_steps_are_not_taken_for_others(fake_nvml: FakeNvml) -> None:
    """The driver still counts them for a moment; others stay busy."""
    fake_nvml.set(busy_looks=3)
    assert seen(look()).utilization == 0.0


@pytest.mark.parametrize(
    ("device", "variables", "uuid"),
    [
        ("auto", {}, "GPU-74c2-0"),
        ("gpu:1", {}, "GPU-74c2-1"),
        ("gpu:0", {"CUDA_VISIBLE_DEVICES": "1"}, "GPU-74c2-1"),
        ("gpu:1", {"CUDA_VISIBLE_DEVICES": "1,0"}, "GPU-74c2-0"),
        ("gpu:0", {"CUDA_VISIBLE_DEVICES": "GPU-74c2-1"}, "GPU-74c2-1"),
    ],
)
def test_the_board_that_a_worker_would_take(
    fake_nvml: FakeNvml, device: str, variables: dict[str, str], uuid: str
) -> None:
    fake_nvml.set(busy_looks=0)
    assert seen(look(device, variables)).uuid == uuid


@pytest.mark.parametrize(
    ("device", "variables"),
    [("cpu", {}), ("gpu:7", {}), ("gpu:1", {"CUDA_VISIBLE_DEVICES": "0"}), ("gpu:0", {"CUDA_VISIBLE_DEVICES": ""})],
)
def test_no_such_board(fake_nvml: FakeNvml, device: str, variables: dict[str, str]) -> None:
    assert isinstance(look(device, variables), Absent)
    assert fake_nvml.users == 0


def test_without_a_driver_there_is_nothing_to_see(no_driver: None) -> None:
    assert isinstance(look(), Absent)


def test_the_multi_process_service_is_known_by_its_pipe(tmp_path: Path) -> None:
    variables = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    assert not mps_is_running(variables)
    (tmp_path / "control").touch()
    assert mps_is_running(variables)


@pytest.mark.gpu
def test_a_process_that_multiplies_on_a_real_gpu() -> None:
    pytest.importorskip("torch")
    with closing(GpuMonitor("gpu:0", {})) as monitor:
        quiet = monitor.use_by_others()
        if isinstance(quiet, Absent):
            pytest.skip(quiet.reason)
        with subprocess.Popen([sys.executable, "-c", MULTIPLIER], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(1.5)  # the driver tells of the last second
            busy = monitor.use_by_others()
            process.kill()
    assert gpu_shared((), before=quiet) is None
    assert gpu_shared((), before=busy) is not None
