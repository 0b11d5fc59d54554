from __future__ import annotations

from pathlib import Path

import pytest
from nvml_stand_in import FakeNvml

from deepstone.absent import Absent
from deepstone.measure.nvml import Nvml, NvmlDevice, open_nvml, throttle_names


def opened(library: str) -> Nvml:
    nvml = open_nvml(library)
    assert isinstance(nvml, Nvml)
    return nvml


def board(nvml: Nvml, index: int = 0) -> NvmlDevice:
    device = nvml.device(index)
    assert isinstance(device, NvmlDevice)
    return device


def test_reads_every_fact_in_si_units(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(energy_mj=2_183_507, reasons=0x4, power_ns=2_877_887_840, thermal_ns=0, processes=2, first_pid=400)
    nvml = opened(fake_nvml.path)
    device = board(nvml, 1)
    assert nvml.driver_version() == "580.159.04"
    assert nvml.device_count() == 2
    assert device.name() == "NVIDIA Fake"
    assert device.uuid() == "GPU-74c2-1"
    assert device.index() == 1
    assert device.memory_bytes() == 150_754_820_096
    assert device.energy_j() == 2183.507
    assert device.sm_clock_mhz() == 1980
    assert device.max_sm_clock_mhz() == 1980
    assert device.temperature_c() == 52
    assert device.power_limit_w() == 700.0
    assert device.utilization() == 0.97
    assert device.throttle_reasons() == ("sw_power_cap",)
    assert device.power_throttled_s() == pytest.approx(2.87788784)
    assert device.thermal_throttled_s() == 0.0
    assert device.compute_pids() == (400, 401)
    nvml.close()


def test_answers_the_older_names_of_an_older_driver(old_fake_nvml: FakeNvml) -> None:
    old_fake_nvml.set(reasons=0x48, processes=1, first_pid=7)
    device = board(opened(old_fake_nvml.path))
    assert device.throttle_reasons() == ("hw_slowdown", "hw_thermal")
    assert device.compute_pids() == (7,)


def test_lists_more_processes_than_it_made_room_for(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(processes=100)
    assert board(opened(fake_nvml.path)).compute_pids() == tuple(range(1000, 1100))


def test_finds_a_board_by_uuid_with_and_without_the_prefix(fake_nvml: FakeNvml) -> None:
    nvml = opened(fake_nvml.path)
    for uuid in ("GPU-74c2-1", "74c2-1"):
        device = nvml.device_by_uuid(uuid)
        assert isinstance(device, NvmlDevice)
        assert device.index() == 1
    assert isinstance(nvml.device_by_uuid("GPU-other"), Absent)


def test_one_refused_call_leaves_the_others_working(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(energy_status=3)
    device = board(opened(fake_nvml.path))
    assert device.energy_j() == Absent("NVML refused nvmlDeviceGetTotalEnergyConsumption: Not Supported")
    assert device.sm_clock_mhz() == 1980


def test_a_board_that_is_not_there_is_absent(fake_nvml: FakeNvml) -> None:
    device = opened(fake_nvml.path).device(5)
    assert device == Absent("NVML refused nvmlDeviceGetHandleByIndex_v2: Invalid Argument")


def test_a_function_that_the_driver_lacks_is_named(fake_nvml: FakeNvml) -> None:
    refused = opened(fake_nvml.path).call("nvmlOfTheFuture")
    assert isinstance(refused, Absent)
    assert "nvmlOfTheFuture" in refused.reason


def test_without_the_library_the_reason_names_it() -> None:
    absent = open_nvml("libnot-here.so.1")
    assert isinstance(absent, Absent)
    assert "libnot-here.so.1" in absent.reason


def test_a_file_that_is_no_library_is_absent(tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_text("text")
    assert isinstance(open_nvml(str(tmp_path / "lib.so")), Absent)


def test_a_driver_that_is_not_loaded_is_absent(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(init_status=9)
    assert open_nvml(fake_nvml.path) == Absent("NVML refused nvmlInit_v2: Driver Not Loaded")


def test_each_opening_is_closed_once(fake_nvml: FakeNvml) -> None:
    first, second = opened(fake_nvml.path), opened(fake_nvml.path)
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
    nvml = open_nvml()
    if isinstance(nvml, Absent):
        pytest.skip(nvml.reason)
    device = board(nvml)
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
    again = nvml.device_by_uuid(uuid)
    assert isinstance(again, NvmlDevice)
    assert again.index() == 0
    nvml.close()
