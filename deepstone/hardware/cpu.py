"""Describes the processor: its model, its instruction sets, and the cores that this process may use."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

from deepstone.absent import Absent
from deepstone.hardware.cgroup import cpu_quota_cores
from deepstone.results.environment import Cache, Cpu

# Instruction sets that decide which kernels a framework picks; those below the line are Arm's.
FLAGS_OF_INTEREST: Final = (
    "sse4_2",
    "avx",
    "f16c",
    "fma",
    "avx2",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
    "amx_fp16",
    # ---
    "asimd",
    "asimdhp",
    "sve",
    "sve2",
    "bf16",
    "i8mm",
)

_NO_CPUFREQ = "the kernel shows no clock control (no cpufreq; usual in a virtual machine)"
_SIZE = re.compile(r"(\d+)([KMG]?)")
_SIZE_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def describe_cpu(root: Path = Path("/")) -> Cpu:
    info = cpuinfo(root)
    flags = cpu_flags(info)
    quota_cores = cpu_quota_cores(root)
    return Cpu(
        model=info.get("model name", _not_listed("model name")),
        vendor=info.get("vendor_id", info.get("CPU implementer", _not_listed("vendor_id"))),
        microarchitecture=_microarchitecture(),
        physical_cores=psutil.cpu_count(logical=False) or Absent("the kernel does not tell cores from threads"),
        logical_cores=os.cpu_count() or Absent("the kernel does not tell"),
        usable_cores=usable_cores(quota_cores),
        quota_cores=quota_cores,
        flags=[flag for flag in FLAGS_OF_INTEREST if flag in flags],
        max_mhz=_max_mhz(root),
        caches=_caches(root),
        numa_nodes=len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or 1,
        governor=_governor(root),
        turbo=_turbo(root),
        smt=_smt(root),
    )


def cpuinfo(root: Path = Path("/")) -> dict[str, str]:
    """Return the first core's entries in /proc/cpuinfo."""
    first, _, _ = (root / "proc/cpuinfo").read_text().partition("\n\n")
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def cpu_flags(info: Mapping[str, str]) -> frozenset[str]:
    return frozenset(info.get("flags", info.get("Features", "")).split())


def usable_cores(quota_cores: float | Absent) -> int:
    """Return the number of logical cores that this process may use, by its affinity and its control group's quota."""
    allowed = len(os.sched_getaffinity(0))
    return allowed if isinstance(quota_cores, Absent) else max(1, min(allowed, int(quota_cores)))


def _microarchitecture() -> str | Absent:
    # Imported here: it reads a table of all processors, which only this function needs. It may be missing if somebody
    # copied Deepstone to a machine by hand; measuring must still work.
    try:
        import archspec.cpu  # pyright: ignore[reportMissingTypeStubs]
    except ModuleNotFoundError:
        return Absent("archspec is not installed: pip install archspec")
    return archspec.cpu.host().name


def _not_listed(key: str) -> Absent:
    return Absent(f"/proc/cpuinfo has no {key}")


def _max_mhz(root: Path) -> float | Absent:
    found_khz = [int(text) for text in _every_cpu(root, "cpufreq/cpuinfo_max_freq")]
    return max(found_khz) / 1e3 if found_khz else Absent(_NO_CPUFREQ)


def _governor(root: Path) -> str | Absent:
    found = sorted(set(_every_cpu(root, "cpufreq/scaling_governor")))
    return ", ".join(found) if found else Absent(_NO_CPUFREQ)


def _turbo(root: Path) -> bool | Absent:
    """Whether the clock may rise above the nominal one."""
    cpus = root / "sys/devices/system/cpu"
    no_turbo = _line(cpus / "intel_pstate/no_turbo")
    if no_turbo is not None:
        return no_turbo == "0"
    boost = _line(cpus / "cpufreq/boost")
    return Absent(_NO_CPUFREQ) if boost is None else boost == "1"


def _smt(root: Path) -> bool | Absent:
    """Whether each core runs two threads now."""
    active = _line(root / "sys/devices/system/cpu/smt/active")
    return Absent("the kernel does not tell") if active is None else active == "1"


def _caches(root: Path) -> list[Cache] | Absent:
    """Return the caches of the first core, nearest first."""
    caches: list[Cache] = []
    for folder in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index[0-9]*")):
        size = _SIZE.fullmatch(_line(folder / "size") or "")
        level, kind, shared = (_line(folder / name) for name in ("level", "type", "shared_cpu_list"))
        if size is None or level is None or kind is None or shared is None:
            continue
        size_bytes = int(size[1]) * _SIZE_UNITS[size[2]]
        caches.append(Cache(level=int(level), type=kind.lower(), bytes=size_bytes, shared_by_cores=_length(shared)))
    return caches or Absent("the kernel does not tell")


def _length(cpu_list: str) -> int:
    """Count the CPUs in "0-3,8,9"."""
    ranges = [part.split("-") for part in cpu_list.split(",")]
    return sum(int(ends[-1]) - int(ends[0]) + 1 for ends in ranges)


def _every_cpu(root: Path, file: str) -> list[str]:
    folders = (root / "sys/devices/system/cpu").glob("cpu[0-9]*")
    return [line for folder in folders if (line := _line(folder / file)) is not None]


def _line(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
