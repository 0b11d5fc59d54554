"""What a record says about the machine it was measured on, and when two machines count as the same."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import psutil

from deepstone.absent import Absent, as_json
from deepstone.hardware.cgroup import memory_limit_bytes
from deepstone.hardware.cpu import cpu_flags, cpuinfo, describe_cpu
from deepstone.hardware.gpu import describe_gpus

_GIB = 2**30

_HYPERVISOR_CLOCKS = {"kvm-clock": "kvm", "hyperv_clocksource_tsc_page": "hyper-v", "xen": "xen"}


def describe_machine(root: Path = Path("/")) -> dict[str, Any]:
    """`environment.machine` of a record, as JSON. What cannot be found out is absent with the reason."""
    return as_json(
        {
            "hostname": platform.node() or Absent("the machine has no name"),
            "os": {"kernel": platform.release(), "distribution": _distribution()},
            "virtualized": _hypervisor(root),
            "cpu": describe_cpu(root),
            "memory_bytes": psutil.virtual_memory().total,
            "memory_limit_bytes": memory_limit_bytes(root),
            "gpus": describe_gpus(),
        }
    )


def machine_sha(description: Mapping[str, Any]) -> str:
    """The same for machines whose results may stand for each other's: processor, cores, instruction sets, memory, GPUs.

    Sizes count in whole GiB, because kernels and drivers keep differing small parts for themselves. Name, kernel,
    driver and clock settings are not in it: they do not make another machine.
    """
    cpu = cast(Mapping[str, Any], description["cpu"])
    facts = {
        "cpu": {key: cpu[key] for key in ("model", "physical_cores", "logical_cores", "usable_cores", "flags")},
        "memory_gib": _gib(description["memory_bytes"]),
        "gpus": _interchangeable_gpus(description["gpus"]),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _interchangeable_gpus(gpus: object) -> list[object]:
    """Names and sizes; which slot a board sits in does not matter, nor why there is none."""
    if not isinstance(gpus, list | tuple):
        return []
    found = [(gpu["name"], _gib(gpu["memory_bytes"])) for gpu in cast(Sequence[Mapping[str, Any]], gpus)]
    return sorted(found, key=str)


def _gib(size_bytes: object) -> object:
    return round(size_bytes / _GIB) if isinstance(size_bytes, int) else size_bytes


def _distribution() -> str | Absent:
    try:
        release = platform.freedesktop_os_release()
    except OSError as error:
        return Absent(f"no os-release file: {error}")
    return release.get("PRETTY_NAME", release["NAME"])


def _hypervisor(root: Path) -> str | Absent:
    """The hypervisor's name as far as a guest may know it."""
    named = _text(root / "sys/hypervisor/type")
    if named:
        return named
    clocks = _text(root / "sys/devices/system/clocksource/clocksource0/available_clocksource").split()
    for clock in clocks:
        if clock in _HYPERVISOR_CLOCKS:
            return _HYPERVISOR_CLOCKS[clock]
    if "hypervisor" not in cpu_flags(cpuinfo(root)):
        return Absent("the processor reports no hypervisor")
    return _text(root / "sys/class/dmi/id/sys_vendor") or "a hypervisor that does not say its name"


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
