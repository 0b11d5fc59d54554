from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nvml_stand_in import FakeNvml

from deepstone.hardware.machine import describe_machine, machine_sha
from deepstone.results.codec import convert
from deepstone.results.environment import Machine

XEON = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8480+
flags\t\t: fpu sse4_2 avx2 avx512f avx512_bf16 amx_bf16 amx_tile aperfmperf

processor\t: 1
"""


def fake_root(folder: Path, files: dict[str, str], *, cpuinfo: str = XEON) -> Path:
    for path, text in {"proc/cpuinfo": cpuinfo, **files}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def sha_of(machine: dict[str, Any]) -> str:
    return machine_sha(convert(machine, Machine))


def absents(tree: object, where: str = "") -> list[str]:
    if isinstance(tree, dict):
        if "absent" in tree:
            assert len(tree) == 1
            assert tree["absent"]
            return [where]
        return [found for key, value in tree.items() for found in absents(value, f"{where}.{key}")]
    if isinstance(tree, list):
        return [found for value in tree for found in absents(value, f"{where}[]")]
    assert tree is not None
    return []


def test_this_machine_is_described_in_plain_json_without_nulls() -> None:
    machine: Any = describe_machine().to_json()
    assert json.loads(json.dumps(machine, allow_nan=False)) == machine
    absents(machine)
    cpu = machine["cpu"]
    assert 1 <= cpu["usable_cores"] <= len(os.sched_getaffinity(0))
    assert cpu["logical_cores"] >= cpu["usable_cores"]
    assert machine["memory_bytes"] > 2**28
    assert machine["os"]["kernel"] == os.uname().release
    assert set(machine) == {
        "hostname",
        "os",
        "virtualized",
        "cpu",
        "memory_bytes",
        "memory_limit_bytes",
        "gpus",
    }


def test_a_bare_metal_server(no_driver: None, tmp_path: Path) -> None:
    cpu0 = "sys/devices/system/cpu/cpu0"
    root = fake_root(
        tmp_path,
        {
            f"{cpu0}/cpufreq/cpuinfo_max_freq": "3800000\n",
            f"{cpu0}/cpufreq/scaling_governor": "performance\n",
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave\n",
            "sys/devices/system/cpu/intel_pstate/no_turbo": "1\n",
            "sys/devices/system/cpu/smt/active": "1\n",
            f"{cpu0}/cache/index0/level": "1\n",
            f"{cpu0}/cache/index0/type": "Data\n",
            f"{cpu0}/cache/index0/size": "48K\n",
            f"{cpu0}/cache/index0/shared_cpu_list": "0,56\n",
            f"{cpu0}/cache/index3/level": "3\n",
            f"{cpu0}/cache/index3/type": "Unified\n",
            f"{cpu0}/cache/index3/size": "107520K\n",
            f"{cpu0}/cache/index3/shared_cpu_list": "0-55\n",
            "sys/devices/system/node/node0/cpulist": "0-55\n",
            "sys/devices/system/node/node1/cpulist": "56-111\n",
        },
    )
    machine: Any = describe_machine(root).to_json()
    cpu = machine["cpu"]
    assert cpu["model"] == "Intel(R) Xeon(R) Platinum 8480+"
    assert cpu["flags"] == ["sse4_2", "avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16"]
    assert cpu["max_mhz"] == 3800.0
    assert cpu["governor"] == "performance, powersave"
    assert cpu["turbo"] is False
    assert cpu["smt"] is True
    assert cpu["caches"] == [
        {"level": 1, "type": "data", "bytes": 48 * 1024, "shared_by_cores": 2},
        {"level": 3, "type": "unified", "bytes": 107520 * 1024, "shared_by_cores": 56},
    ]
    assert cpu["numa_nodes"] == 2
    absent = set(absents(machine)) - {".cpu.microarchitecture"}  # says what the tests themselves run on
    assert absent == {".virtualized", ".cpu.quota_cores", ".memory_limit_bytes", ".gpus"}


def test_a_bare_virtual_machine_says_why_things_are_absent(no_driver: None, tmp_path: Path) -> None:
    root = fake_root(tmp_path, {}, cpuinfo="processor: 0\nflags: fpu hypervisor\n")
    machine: Any = describe_machine(root).to_json()
    assert machine["virtualized"] == "a hypervisor that does not say its name"
    assert machine["gpus"]["absent"].startswith("no NVIDIA driver here")
    wanted = {".cpu.model", ".cpu.max_mhz", ".cpu.governor", ".cpu.turbo", ".cpu.smt", ".cpu.caches"}
    assert wanted <= set(absents(machine))


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("sys/hypervisor/type", "xen\n", "xen"),
        ("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc kvm-clock \n", "kvm"),
        ("sys/class/dmi/id/sys_vendor", "VMware, Inc.\n", "VMware, Inc."),
    ],
)
def test_hypervisors_by_name(tmp_path: Path, file: str, text: str, name: str) -> None:
    root = fake_root(tmp_path, {file: text}, cpuinfo="flags: hypervisor\n")
    assert describe_machine(root).to_json()["virtualized"] == name


def test_a_quota_cuts_the_usable_cores(tmp_path: Path) -> None:
    root = fake_root(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"})
    cpu = describe_machine(root).to_json()["cpu"]
    assert cpu["quota_cores"] == 0.5
    assert cpu["usable_cores"] == 1


def test_gpus_are_listed_in_nvmls_order(fake_nvml: FakeNvml) -> None:
    gpus = describe_machine().to_json()["gpus"]
    assert [gpu["uuid"] for gpu in gpus] == ["GPU-74c2-0", "GPU-74c2-1"]
    assert gpus[1] == {
        "index": 1,
        "name": "NVIDIA Fake",
        "uuid": "GPU-74c2-1",
        "memory_bytes": 150_754_820_096,
        "driver": "580.159.04",
        "cuda_cores": 16896,
        "compute_capability": "9.0",
        "max_sm_clock_mhz": 1980,
        "mig": False,
        "mps": False,
    }
    assert fake_nvml.users == 0


@pytest.fixture(scope="module")
def machine() -> dict[str, Any]:
    described = describe_machine().to_json()
    h200 = {"index": 0, "name": "NVIDIA H200", "uuid": "GPU-0", "memory_bytes": 150_754_820_096, "driver": "580"}
    return described | {"memory_bytes": 64 * 2**30, "gpus": [h200]}


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    "change",
    [
        lambda machine: machine.update(hostname="elsewhere"),
        lambda machine: machine["os"].update(kernel="9.9"),
        lambda machine: machine.update(memory_bytes=64 * 2**30 - 10**8),
        lambda machine: machine["gpus"][0].update(uuid="GPU-1", driver="600", memory_bytes=150_754_000_000),
        lambda machine: machine["cpu"].update(governor="powersave"),
    ],
)
def test_the_same_machine_under_another_name(machine: dict[str, Any], change: Change) -> None:
    other = copy.deepcopy(machine)
    change(other)
    assert sha_of(other) == sha_of(machine)


@pytest.mark.parametrize(
    "change",
    [
        lambda machine: machine["cpu"].update(model="another"),
        lambda machine: machine["cpu"].update(usable_cores=machine["cpu"]["usable_cores"] + 1),
        lambda machine: machine["cpu"]["flags"].append("amx_fp16"),
        lambda machine: machine.update(memory_bytes=32 * 2**30),
        lambda machine: machine["gpus"][0].update(name="NVIDIA H100"),
        lambda machine: machine["gpus"].append(machine["gpus"][0]),
        lambda machine: machine.update(gpus={"absent": "no driver"}),
    ],
)
def test_another_machine(machine: dict[str, Any], change: Change) -> None:
    other = copy.deepcopy(machine)
    change(other)
    assert sha_of(other) != sha_of(machine)


def test_the_sha_is_the_same_after_a_trip_through_json(machine: dict[str, Any]) -> None:
    assert sha_of(json.loads(json.dumps(machine))) == sha_of(machine)
    assert len(sha_of(machine)) == 64


def test_importing_it_loads_neither_archspec_nor_numpy() -> None:
    code = "import sys, deepstone.hardware.machine, deepstone.hardware.noise; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"archspec", "numpy"} & set(loaded)
