"""Reads the load of the machine by others during a measurement.

    now() ─▶ block ─▶ block ─▶ now()          `measure.noise` judges the difference of the two

Read between blocks, never inside one: a reading costs about 0.1 ms, 7 µs for each thread of ours, and with a GPU 1.2 ms
more (H200, mostly for the throttling counters).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from deepstone.absent import Absent
from deepstone.hardware.cgroup import quota_files, quota_reading
from deepstone.hardware.cpu import cpu_flags, cpuinfo
from deepstone.hardware.gpu import GpuState
from deepstone.measure.noise import CoreReading, NoiseReading
from deepstone.measure.nvml import Nvml, open_nvml

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Noise:
    """Reads the noise around the processes of a run; all other processes count as other load."""

    def __init__(
        self,
        pids: Iterable[int],
        *,
        gpu_index: int | None = None,
        gpu_uuid: str | None = None,
        gpu_pids_before: Iterable[int] = (),
        root: Path = Path("/"),
    ) -> None:
        self._pids = tuple(pids)
        self._cores = sorted(os.sched_getaffinity(0))
        self._proc = str(root / "proc")
        self._clocks = _clock_reader(root, self._cores)
        self._quota_files = quota_files(root)
        self._nvml, self._gpu = _open_gpu(gpu_index, gpu_uuid, tuple(gpu_pids_before))

    def now(self) -> NoiseReading:
        at_s = time.perf_counter()
        switches = [_switches(f"{self._proc}/{pid}") for pid in self._pids]
        others_of_ours_s = sum(_cpu_s(f"{self._proc}/{pid}") for pid in self._pids if pid != os.getpid())
        return NoiseReading(
            at_s=at_s,
            cores=_core_readings(self._proc, self._cores),
            clock_mhz=self._clocks if isinstance(self._clocks, Absent) else self._clocks(),
            load_1min=float(_head(f"{self._proc}/loadavg").split()[0]),
            # This process works for the run too, and so did the children that it has waited for.
            our_cpu_s=time.process_time() + sum(os.times()[2:4]) + others_of_ours_s,
            our_voluntary_switches=sum(voluntary for voluntary, _ in switches),
            our_involuntary_switches=sum(involuntary for _, involuntary in switches),
            gpu=self._gpu if isinstance(self._gpu, Absent) else self._gpu.now(self._pids, Path(self._proc)),
            quotas=tuple(found for file in self._quota_files if (found := quota_reading(file)) is not None),
        )

    def close(self) -> None:
        if not isinstance(self._nvml, Absent):
            self._nvml.close()


def _open_gpu(
    index: int | None, uuid: str | None, pids_before: tuple[int, ...]
) -> tuple[Nvml | Absent, GpuState | Absent]:
    if index is None and uuid is None:
        absent = Absent("no GPU is measured")
        return absent, absent
    nvml = open_nvml()
    if isinstance(nvml, Absent):
        return nvml, nvml
    device = nvml.device(index or 0) if uuid is None else nvml.device_by_uuid(uuid)
    return nvml, device if isinstance(device, Absent) else GpuState(device, pids_before)


def _core_readings(proc: str, cores: Iterable[int]) -> tuple[CoreReading, ...]:
    labels = {f"cpu{core}".encode() for core in cores}
    readings: list[CoreReading] = []
    for line in _head(f"{proc}/stat").splitlines():
        if not line.startswith(b"cpu"):
            break  # the rest of the file grows with the number of interrupts
        label, *fields = line.split()
        if label in labels:
            # User time includes guest time, which the later fields repeat.
            user, nice, system, idle, iowait, irq, softirq, steal = (int(field) * _TICK_S for field in fields[:8])
            busy_s = user + nice + system + irq + softirq
            total_s = busy_s + idle + iowait + steal
            readings.append(CoreReading(busy_s=busy_s, steal_s=steal, total_s=total_s))
    return tuple(readings)


def _cpu_s(process: str) -> float:
    """Return the CPU time of a process and of the children that it has waited for; 0 if it has ended."""
    try:
        text = _head(f"{process}/stat")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    # The name, in parentheses, may contain spaces and parentheses.
    after_name = text[text.rindex(b")") + 1 :].split()
    return sum(int(ticks) for ticks in after_name[11:15]) * _TICK_S


def _switches(process: str) -> tuple[int, int]:
    """Return voluntary and involuntary context switches over all threads of a process."""
    voluntary = involuntary = 0
    try:
        with os.scandir(f"{process}/task") as found:
            threads = [thread.path for thread in found]
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0
    for thread in threads:
        try:
            status = _head(f"{thread}/status")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        # The last two lines: "voluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n".
        words = status[status.rindex(b"\nvoluntary_ctxt_switches:") :].split()
        voluntary += int(words[1])
        involuntary += int(words[3])
    return voluntary, involuntary


def _head(path: str) -> bytes:
    """Return up to 64 KiB of a kernel file. Without pathlib and buffers this takes 7 µs instead of 22."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 2**16)
    finally:
        os.close(descriptor)


def _clock_reader(root: Path, cores: Iterable[int]) -> Callable[[], tuple[float, ...]] | Absent:
    """Return a function that reads the current clock of each core, in MHz."""
    files = [root / f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq" for core in cores]
    if all(file.exists() for file in files):
        return lambda: tuple(int(file.read_text()) / 1e3 for file in files)
    # Without this flag the kernel reports a constant there.
    if "aperfmperf" not in cpu_flags(cpuinfo(root)):
        return Absent("the kernel does not show the CPU's clock (usual in a virtual machine)")
    numbers = {str(core) for core in cores}
    return lambda: _cpuinfo_clocks_mhz(root / "proc/cpuinfo", numbers)


def _cpuinfo_clocks_mhz(path: Path, cores: Iterable[str]) -> tuple[float, ...]:
    numbers = frozenset(cores)
    clocks_mhz: list[float] = []
    core = ""
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.startswith("processor"):
            core = value.strip()
        elif key.startswith("cpu MHz") and core in numbers:
            clocks_mhz.append(float(value))
    return tuple(clocks_mhz)
