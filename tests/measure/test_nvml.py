from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from nvml_stand_in import FakeNvml

from deepstone.absent import Absent
from deepstone.measure import nvml
from deepstone.measure.nvml import Nvml, NvmlDevice, open_nvml, throttle_names


def opened() -> Nvml:
    driver = open_nvml()
    assert isinstance(driver, Nvml)
    return driver


def board(driver: Nvml, index: int = 0) -> NvmlDevice:
    device = driver.device(index)
    assert isinstance(device, NvmlDevice)
    return device


def test_reads_every_fact_in_si_units(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(energy_mj=2_183_507, reasons=0x4, power_ns=2_877_887_840, thermal_ns=0, processes=2, first_pid=400)
    driver = opened()
    device = board(driver, 1)
    assert driver.driver_version() == "580.159.04"
    assert driver.device_count() == 2
    assert device.name() == "NVIDIA Fake"
    assert device.uuid() == "GPU-74c2-1"
    assert device.memory_bytes() == 150_754_820_096
    assert device.energy_j() == 2183.507
    assert device.sm_clock_mhz() == 1980
    assert device.max_sm_clock_mhz() == 1980
    assert device.cuda_cores() == 16896
    assert device.compute_capability() == "9.0"
    assert device.utilization() == 0.97
    assert device.throttle_reasons() == ("sw_power_cap",)
    assert device.power_throttled_s() == pytest.approx(2.87788784)
    assert device.thermal_throttled_s() == 0.0
    assert device.compute_pids() == (400, 401)
    assert device.graphics_pids() == ()
    assert device.used_bytes() == 0
    assert device.mig_is_on() is False
    driver.close()


@pytest.mark.parametrize(
    ("script", "expected"),
    [({"mig": 1}, True), ({"instance": 1}, True), ({"mig": 1, "mig_status": 3}, False), ({}, False)],
)
def test_a_divided_board(fake_nvml: FakeNvml, script: dict[str, int], expected: bool) -> None:
    fake_nvml.set(**script)
    assert board(opened()).mig_is_on() is expected


def test_an_instance_of_a_divided_board_is_found_by_the_name_that_torch_gives(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(instance=1)
    driver = opened()
    for uuid in ("GPU-74c2-1", "74c2-1", "MIG-74c2-1"):
        assert isinstance(driver.device_by_uuid(uuid), NvmlDevice)


def test_answers_the_older_names_of_an_older_driver(old_fake_nvml: FakeNvml) -> None:
    old_fake_nvml.set(reasons=0x48, processes=1, first_pid=7)
    device = board(opened())
    assert device.throttle_reasons() == ("hw_slowdown", "hw_thermal")
    assert device.compute_pids() == (7,)


def test_lists_more_processes_than_it_made_room_for(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(processes=100)
    assert board(opened()).compute_pids() == tuple(range(1000, 1100))


def test_finds_a_board_by_uuid_with_and_without_the_prefix(fake_nvml: FakeNvml) -> None:
    driver = opened()
    for uuid in ("GPU-74c2-1", "74c2-1"):
        device = driver.device_by_uuid(uuid)
        assert isinstance(device, NvmlDevice)
        assert device.uuid() == "GPU-74c2-1"
    assert isinstance(driver.device_by_uuid("GPU-other"), Absent)


def test_one_refused_call_leaves_the_others_working(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(energy_status=3)
    device = board(opened())
    assert device.energy_j() == Absent("NVML refused nvmlDeviceGetTotalEnergyConsumption: Not Supported")
    assert device.sm_clock_mhz() == 1980


def test_a_board_that_is_not_there_is_absent(fake_nvml: FakeNvml) -> None:
    device = opened().device(5)
    assert device == Absent("NVML refused nvmlDeviceGetHandleByIndex: Invalid Argument")


def test_a_function_that_the_driver_lacks_is_named(old_fake_nvml: FakeNvml) -> None:
    refused = board(opened()).cuda_cores()
    assert refused == Absent("this driver's NVML has no nvmlDeviceGetNumGpuCores: a newer driver may")


def test_without_a_driver_the_reason_names_the_library_and_pynvml_is_not_imported(no_driver: None) -> None:
    absent = open_nvml()
    assert isinstance(absent, Absent)
    assert absent.reason.startswith("no NVIDIA driver here: libnot-here.so.1")
    code = """
import sys
from deepstone.measure import nvml
nvml.LIBRARY = "libnot-here.so.1"
nvml.open_nvml()
print(*sys.modules)
"""
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "pynvml" not in loaded


def test_a_file_that_is_no_library_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib.so").write_text("text")
    monkeypatch.setattr(nvml, "LIBRARY", str(tmp_path / "lib.so"))
    assert isinstance(open_nvml(), Absent)


def test_without_the_package_the_remedy_is_told(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert open_nvml() == Absent("nvidia-ml-py is not installed: pip install nvidia-ml-py")


def test_a_driver_that_is_not_loaded_is_absent(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(init_status=9)
    assert open_nvml() == Absent("NVML refused nvmlInit: Driver Not Loaded")


def test_each_opening_is_closed_once(fake_nvml: FakeNvml) -> None:
    first, second = opened(), opened()
    assert fake_nvml.users == 2
    first.close()
    second.close()
    assert fake_nvml.users == 0


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        (0, ()),
        (0x1, ("gpu_idle",)),
        (0x2 | 0x20 | 0x80, ("applications_clocks", "sw_thermal", "hw_power_brake")),
        (0x1000, ("unknown_0x1000",)),
    ],
)
def test_throttle_names(mask: int, names: tuple[str, ...]) -> None:
    assert throttle_names(mask) == names


@pytest.mark.gpu
def test_a_real_driver_answers() -> None:
    driver = open_nvml()
    if isinstance(driver, Absent):
        pytest.skip(driver.reason)
    device = board(driver)
    memory_bytes, clock_mhz, max_clock_mhz = device.memory_bytes(), device.sm_clock_mhz(), device.max_sm_clock_mhz()
    assert isinstance(memory_bytes, int)
    assert memory_bytes > 2**30
    assert isinstance(clock_mhz, int)
    assert isinstance(max_clock_mhz, int)
    assert 0 < clock_mhz <= max_clock_mhz
    assert not isinstance(device.throttle_reasons(), Absent)
    assert not isinstance(device.compute_pids(), Absent)
    uuid = device.uuid()
    assert isinstance(uuid, str)
    again = driver.device_by_uuid(uuid)
    assert isinstance(again, NvmlDevice)
    assert again.uuid() == uuid
    driver.close()
