from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from nvml_stand_in import FakeNvml
from patience import shown

from deepstone.absent import Absent
from deepstone.hardware.gpu import other_pids
from deepstone.hardware.noise import Noise
from deepstone.measure.noise import GpuReading

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
THREADED_SLEEPER = """
import threading, time
for _ in range(15):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print(flush=True)
time.sleep(60)
"""
SPINNER = "import time\nprint(flush=True)\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


def child(code: str) -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


@pytest.fixture
def sleeper() -> Iterator[int]:
    yield from child(THREADED_SLEEPER)


@pytest.fixture
def spinner() -> Iterator[int]:
    yield from child(SPINNER)


def fake_root(folder: Path, *, flags: str = "fpu") -> Path:
    """A machine with every core this process may use, and process 77 with two threads, one of them ending."""
    cores = sorted(os.sched_getaffinity(0))
    stat = "cpu  9 9 9 9 9 9 9 9 9 9\n" + "".join(f"cpu{core} 100 20 30 4000 50 6 7 80 90 10\n" for core in cores)
    threads = {
        77: "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n",
        78: "Name:\tx\nvoluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t30\n",
    }
    files = {
        "proc/stat": stat + "intr 123 0 0\ncpuidle 1\n",
        "proc/loadavg": "1.25 0.5 0.1 2/300 999\n",
        "proc/cpuinfo": "".join(f"processor : {core}\ncpu MHz : 2{core}00.5\nflags : {flags}\n\n" for core in cores),
        "proc/77/stat": "77 (a (nasty) name) S 1 1 1 0 -1 0 1 2 3 4 500 200 30 4 20 0 2 0 9\n",
        **{f"proc/77/task/{thread}/status": text for thread, text in threads.items()},
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    (folder / "proc/77/task/79").mkdir()
    return folder


def test_reads_what_the_kernel_wrote(tmp_path: Path) -> None:
    before_s = time.process_time() + sum(os.times()[2:4])
    reading = Noise([77], root=fake_root(tmp_path)).now()
    assert len(reading.cores) == len(os.sched_getaffinity(0))
    assert reading.cores[0].busy_s == pytest.approx((100 + 20 + 30 + 6 + 7) / TICKS_PER_S)
    assert reading.cores[0].steal_s == pytest.approx(80 / TICKS_PER_S)
    assert reading.cores[0].total_s == pytest.approx(4293 / TICKS_PER_S)
    assert reading.load_1min == 1.25
    assert 0 <= reading.our_cpu_s - (before_s + 734 / TICKS_PER_S) < 5
    assert (reading.our_voluntary_switches, reading.our_involuntary_switches) == (45, 32)
    assert reading.gpu == Absent("no GPU is measured")


def test_a_constant_clock_is_absent(tmp_path: Path) -> None:
    assert isinstance(Noise([], root=fake_root(tmp_path)).now().clock_mhz, Absent)


def test_the_clock_comes_from_cpuinfo_where_the_processor_counts_cycles(tmp_path: Path) -> None:
    clock_mhz = Noise([], root=fake_root(tmp_path, flags="aperfmperf")).now().clock_mhz
    assert clock_mhz == tuple(float(f"2{core}00.5") for core in sorted(os.sched_getaffinity(0)))


def test_the_clock_comes_from_cpufreq_where_there_is_one(tmp_path: Path) -> None:
    root = fake_root(tmp_path)
    for core in os.sched_getaffinity(0):
        file = root / f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq"
        file.parent.mkdir(parents=True)
        file.write_text("3100000\n")
    assert Noise([], root=root).now().clock_mhz == (3100.0,) * len(os.sched_getaffinity(0))


def test_a_process_that_is_gone_counts_nothing(tmp_path: Path) -> None:
    reading = Noise([4321], root=fake_root(tmp_path)).now()
    assert (reading.our_voluntary_switches, reading.our_involuntary_switches) == (0, 0)


def test_our_own_work_is_told_from_that_of_others(spinner: int) -> None:
    ours, others = Noise([spinner]), Noise([])

    def told_apart() -> bool:
        our_start, other_start = ours.now(), others.now()
        time.sleep(0.5)
        our_end, other_end = ours.now(), others.now()
        busy_s = sum(core.busy_s for core in our_end.cores) - sum(core.busy_s for core in our_start.cores)
        other_s = other_end.our_cpu_s - other_start.our_cpu_s
        return our_end.our_cpu_s - our_start.our_cpu_s > 0.1 > other_s and busy_s > 0.1

    assert shown(told_apart)  # half a second if the machine is free


def test_a_reading_costs_less_than_a_millisecond(sleeper: int) -> None:
    """Of CPU time, with 16 threads to look at; the cheapest quarter, because other tests may run beside this one."""
    noise = Noise([sleeper])
    costs_s: list[float] = []
    for _ in range(100):
        start_s = time.process_time()
        noise.now()
        costs_s.append(time.process_time() - start_s)
    assert statistics.quantiles(costs_s, n=4)[0] < 1e-3


def test_the_gpu_is_read_too(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    fake_nvml.set(clock_mhz=1425, reasons=0x4, power_ns=2_500_000_000, processes=2, first_pid=77)
    root = fake_root(tmp_path)
    (root / "proc/78").mkdir()
    with closing(Noise([77], gpu_index=0, root=root)) as noise:
        assert noise.now().gpu == GpuReading(
            sm_clock_mhz=1425,
            max_sm_clock_mhz=1980,
            throttle_reasons=("sw_power_cap",),
            power_throttled_s=2.5,
            thermal_throttled_s=0.0,
            other_pids=(78,),
        )
    assert fake_nvml.users == 0


@pytest.mark.parametrize(("index", "uuid"), [(9, None), (0, "GPU-other")])
def test_a_gpu_that_is_not_there_is_absent_in_every_reading(fake_nvml: FakeNvml, index: int, uuid: str | None) -> None:
    with closing(Noise([], gpu_index=index, gpu_uuid=uuid)) as noise:
        assert noise.now().gpu == noise.now().gpu
        assert isinstance(noise.now().gpu, Absent)


def test_without_a_driver_the_gpu_is_absent(no_driver: None) -> None:
    with closing(Noise([], gpu_index=0)) as noise:
        assert isinstance(noise.now().gpu, Absent)


@pytest.mark.parametrize(
    ("listed", "ours", "before", "others"),
    [
        ((), (10,), (), ()),
        ((10,), (10,), (), ()),
        ((10, 20), (10,), (), (20,)),
        ((20,), (10,), (), (20,)),  # seen in this container and not ours
        ((900,), (10,), (), ()),  # a number of the host's: must be ours
        ((900, 901), (10,), (), (901,)),
        ((900, 901), (10, 11), (), ()),  # both are ours
        ((900, 901), (10,), (900,), (900,)),  # the first was there before our worker
        ((10, 900), (10,), (), (900,)),
        ((10, 30), (10,), (30,), ()),  # the server that runs everybody's kernels
    ],
)
def test_others_on_the_gpu(
    tmp_path: Path, listed: tuple[int, ...], ours: tuple[int, ...], before: tuple[int, ...], others: tuple[int, ...]
) -> None:
    for visible, name in ((10, "python"), (20, "python"), (30, "nvidia-cuda-mps-server")):
        (tmp_path / str(visible)).mkdir()
        (tmp_path / str(visible) / "comm").write_text(f"{name}\n")
    assert other_pids(listed, ours, tmp_path, before) == others


@pytest.mark.gpu
def test_a_real_gpu_is_read() -> None:
    with closing(Noise([os.getpid()], gpu_index=0)) as noise:
        gpu = noise.now().gpu
    if isinstance(gpu, Absent):
        pytest.skip(gpu.reason)
    assert isinstance(gpu.sm_clock_mhz, int)
    assert gpu.sm_clock_mhz > 0
    assert not isinstance(gpu.throttle_reasons, Absent)
