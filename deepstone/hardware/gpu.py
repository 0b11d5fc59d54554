"""NVIDIA GPUs: the driver's description of them, and their use by others.

    use_by_others() ─▶ worker starts … now() ─ blocks ─ now() … worker ends ─▶ use_by_others()

`GpuMonitor.use_by_others` reads while no worker of ours uses the GPU. Then everything that NVML shows belongs to
others. This works inside a container too, where NVML may number processes as the host does or list none: used memory
and utilization are shown everywhere. `GpuState.now` reads while our worker runs, as a part of a noise reading.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from deepstone.absent import Absent
from deepstone.measure.noise import BUSY_GPU_SHARE, GpuReading, GpuUse
from deepstone.measure.nvml import Nvml, NvmlDevice, open_nvml
from deepstone.results.environment import Gpu

# The driver's utilization covers up to a second, which may include our own last steps.
_LONGEST_POLL_S: Final = 1.2
_POLL_S: Final = 0.1
_GPU_FILES: Final = ("nvidia[0-9]*", "nvhost-*", "nvgpu", "kfd", "dxg")


def describe_gpus() -> list[Gpu] | Absent:
    """Return every GPU that NVML lists, in its order (by PCI bus)."""
    nvml = open_nvml()
    if isinstance(nvml, Absent):
        return nvml
    with closing(nvml):
        count = nvml.device_count()
        return count if isinstance(count, Absent) else [_describe(nvml, index) for index in range(count)]


def _describe(nvml: Nvml, index: int) -> Gpu:
    device = nvml.device(index)
    if isinstance(device, Absent):
        return Gpu(
            index=index,
            name=device,
            uuid=device,
            memory_bytes=device,
            driver=device,
            cuda_cores=device,
            compute_capability=device,
            max_sm_clock_mhz=device,
            mig=device,
            mps=mps_is_running(),
        )
    return Gpu(
        index=index,
        name=device.name(),
        uuid=device.uuid(),
        memory_bytes=device.memory_bytes(),
        driver=nvml.driver_version(),
        cuda_cores=device.cuda_cores(),
        compute_capability=device.compute_capability(),
        max_sm_clock_mhz=device.max_sm_clock_mhz(),
        mig=device.mig_is_on(),
        mps=mps_is_running(),
    )


def may_have_gpu(devices: Path = Path("/dev")) -> bool:
    """Whether there may be a GPU that NVML does not list: of another maker, of a board computer, under Windows."""
    return any(next(devices.glob(pattern), None) is not None for pattern in _GPU_FILES)


class GpuState:
    """Reads the state of one GPU repeatedly."""

    def __init__(self, device: NvmlDevice, pids_before: Collection[int] = ()) -> None:
        """`pids_before`: processes that used it before ours."""
        self._device = device
        self._pids_before = frozenset(pids_before)
        # Read once: it does not change, and the query takes a millisecond.
        self._max_sm_clock_mhz = device.max_sm_clock_mhz()

    def now(self, our_pids: Collection[int], proc: Path) -> GpuReading:
        device = self._device
        listed = device.compute_pids()
        return GpuReading(
            sm_clock_mhz=device.sm_clock_mhz(),
            max_sm_clock_mhz=self._max_sm_clock_mhz,
            throttle_reasons=device.throttle_reasons(),
            power_throttled_s=device.power_throttled_s(),
            thermal_throttled_s=device.thermal_throttled_s(),
            other_pids=listed if isinstance(listed, Absent) else other_pids(listed, our_pids, proc, self._pids_before),
        )


class GpuMonitor:
    """Reads the use of the GPU that a worker with these variables would have as its device."""

    def __init__(self, device: str, variables: Mapping[str, str]) -> None:
        self._nvml = open_nvml() if device != "cpu" else Absent("no GPU is measured")
        self._device = self._nvml if isinstance(self._nvml, Absent) else _board(self._nvml, device, variables)
        self._mps = mps_is_running(variables)

    def use_by_others(self, *, patient: bool = True) -> GpuUse | Absent:
        """Return the current use by others. `patient`: if the GPU is busy, poll for a second whether it stays busy."""
        device = self._device
        if isinstance(device, Absent):
            return device
        compute, graphics = device.compute_pids(), device.graphics_pids()
        return GpuUse(
            uuid=device.uuid(),
            compute_pids=compute if isinstance(compute, Absent) else tuple(filter(_is_no_mps_server, compute)),
            graphics_pids=graphics,
            utilization=_lowest_utilization(device, _LONGEST_POLL_S if patient else 0.0),
            used_bytes=device.used_bytes(),
            mig=device.mig_is_on(),
            mps=self._mps,
        )

    def close(self) -> None:
        if not isinstance(self._nvml, Absent):
            self._nvml.close()


def uuid_of_board(device: str, variables: Mapping[str, str]) -> str | Absent:
    """Return the UUID of the GPU that a worker with these variables would have as this device."""
    nvml = open_nvml()
    if isinstance(nvml, Absent):
        return nvml
    with closing(nvml):
        board = _board(nvml, device, variables)
        return board if isinstance(board, Absent) else board.uuid()


def _board(nvml: Nvml, device: str, variables: Mapping[str, str]) -> NvmlDevice | Absent:
    """Find the board by CUDA's simple rules: among those in CUDA_VISIBLE_DEVICES, else among all in NVML's order."""
    number = int(device.partition(":")[2] or 0)
    visible = variables.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return nvml.device(number)
    names = [name.strip() for name in visible.split(",")]
    if number >= len(names):
        return Absent(f"CUDA_VISIBLE_DEVICES={visible} hides {device}")
    name = names[number]
    return nvml.device(int(name)) if name.isdecimal() else nvml.device_by_uuid(name)


def _lowest_utilization(device: NvmlDevice, longest_s: float) -> float | Absent:
    """Return the lowest of a few readings; a board that others keep busy is busy in all of them."""
    end_s = time.monotonic() + longest_s
    lowest = device.utilization()
    while not isinstance(lowest, Absent) and lowest > BUSY_GPU_SHARE and time.monotonic() < end_s:
        time.sleep(_POLL_S)
        again = device.utilization()
        lowest = lowest if isinstance(again, Absent) else min(lowest, again)
    return lowest


def other_pids(
    listed: Collection[int], our_pids: Collection[int], proc: Path, before: Collection[int] = ()
) -> tuple[int, ...]:
    """Return the processes on a GPU that are not ours.

    A driver may number a container's processes as the host does. So if it lists none of ours, but some that this
    container cannot see, as many of them as we have count as ours, except those that were there `before`.
    """
    others = [pid for pid in listed if pid not in our_pids and pid != os.getpid()]
    if len(others) == len(listed):
        hidden = [pid for pid in others if pid not in before and not (proc / str(pid)).exists()]
        ours = hidden[: max(1, len(our_pids))]
        others = [pid for pid in others if pid not in ours]
    return tuple(pid for pid in others if _is_no_mps_server(pid, proc))


def mps_is_running(variables: Mapping[str, str] = os.environ) -> bool:
    """Whether kernels of several processes go through NVIDIA's multi-process service."""
    folder = variables.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps"
    return Path(folder, "control").exists()


def _is_no_mps_server(pid: int, proc: Path = Path("/proc")) -> bool:
    """The server of NVIDIA's multi-process service has its own context and serves all processes, ours too."""
    try:
        return not (proc / str(pid) / "comm").read_text().startswith("nvidia-cuda-mps")
    except OSError:
        return True
