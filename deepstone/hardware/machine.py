"""Describes the machine for records, and decides when two machines count as the same."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

import psutil

from deepstone.absent import Absent
from deepstone.hardware.cgroup import memory_limit_bytes
from deepstone.hardware.cpu import cpu_flags, cpuinfo, describe_cpu
from deepstone.hardware.gpu import describe_gpus
from deepstone.results.environment import Cpu, Machine, OperatingSystem
from deepstone.results.identity import canonical_json
from deepstone.results.parts import Json

_GIB = 2**30

_HYPERVISOR_CLOCKS = {"kvm-clock": "kvm", "hyperv_clocksource_tsc_page": "hyper-v", "xen": "xen"}


def describe_machine(root: Path = Path("/")) -> Machine:
    """Describe this machine. Unknown facts are absent with the reason."""
    return Machine(
        hostname=platform.node() or Absent("the machine has no name"),
        os=OperatingSystem(kernel=platform.release(), distribution=_distribution()),
        virtualized=_hypervisor(root),
        cpu=describe_cpu(root),
        memory_bytes=psutil.virtual_memory().total,
        memory_limit_bytes=memory_limit_bytes(root),
        gpus=describe_gpus(),
    )


def machine_sha(machine: Machine) -> str:
    """Return a hash that comparable machines share: processor, cores, instruction sets, memory, GPUs.

    Sizes count in whole GiB, because kernels and drivers reserve small parts that differ. Name, kernel, driver and
    clock settings are not included: they do not make another machine. Raises KeyError if an early record lacks a field.
    """
    described, cpu = machine.to_json(), machine.cpu.to_json() if isinstance(machine.cpu, Cpu) else {}
    boards = [gpu.to_json() for gpu in machine.gpus] if isinstance(machine.gpus, list) else []
    facts = {
        "cpu": {key: cpu[key] for key in ("model", "physical_cores", "logical_cores", "usable_cores", "flags")},
        "memory_gib": _gib(described["memory_bytes"]),
        # The slot of a board does not matter, nor the reason why there is none.
        "gpus": sorted(((board["name"], _gib(board["memory_bytes"])) for board in boards), key=str),
    }
    return hashlib.sha256(canonical_json(facts).encode()).hexdigest()


def _gib(size_bytes: Json) -> Json:
    return round(size_bytes / _GIB) if isinstance(size_bytes, int) else size_bytes


def _distribution() -> str | Absent:
    try:
        release = platform.freedesktop_os_release()
    except OSError as error:
        return Absent(f"no os-release file: {error}")
    return release.get("PRETTY_NAME", release["NAME"])


def _hypervisor(root: Path) -> str | Absent:
    """Return the hypervisor's name, as far as a guest can see it."""
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
