from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nvml_stand_in import FakeNvml

from deepstone.absent import Absent
from deepstone.measure.energy.base import Meter
from deepstone.measure.energy.rapl import WrappingCounter
from deepstone.measure.energy.window import find_meters

RANGE_UJ = 262_143_328_850

# Read from a package at about 150 W, once a second; the counter turned between the third and the fourth.
RECORDED_UJ = [261_800_000_000, 261_950_112_000, 262_100_340_000, 107_011_150, 257_120_150]


def zone(powercap: Path, folder: str, *, name: str, energy_uj: int | None = 1_000_000) -> Path:
    path = powercap / folder
    path.mkdir(parents=True)
    (path / "name").write_text(f"{name}\n")
    (path / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    if energy_uj is not None:
        (path / "energy_uj").write_text(f"{energy_uj}\n")
    return path


def found(meters: object) -> list[Meter]:
    assert isinstance(meters, list)
    return meters


def reason(meters: object) -> str:
    assert isinstance(meters, Absent)
    return meters.reason


def test_a_recorded_counter_that_turned_never_falls(tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", name="package-0", energy_uj=RECORDED_UJ[0])
    (meter,) = found(find_meters("cpu", powercap=tmp_path))
    readings_j: list[float] = []
    for energy_uj in RECORDED_UJ:
        (package / "energy_uj").write_text(f"{energy_uj}\n")
        reading_j = meter.read_j()
        assert isinstance(reading_j, float)
        readings_j.append(reading_j)
    used_j = [after - before for before, after in itertools.pairwise(readings_j)]
    assert used_j == pytest.approx([150.112, 150.228, 150.0, 150.109])
    meter.close()


@given(start=st.integers(0, 999), used=st.lists(st.integers(0, 999), max_size=30))
def test_a_counter_read_once_a_turn_loses_nothing(start: int, used: list[int]) -> None:
    counter = WrappingCounter(1000)
    true_totals = list(itertools.accumulate(used, initial=start))
    totals = [counter.total(total % 1000) for total in true_totals]
    assert totals == true_totals


def test_only_whole_packages_count(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", name="package-0")
    zone(tmp_path, "intel-rapl:0:0", name="dram")
    zone(tmp_path, "intel-rapl:1", name="package-1")
    zone(tmp_path, "intel-rapl:2", name="psys")
    zone(tmp_path, "intel-rapl-mmio:0", name="package-0")
    meters = found(find_meters("cpu", powercap=tmp_path))
    assert [meter.covers for meter in meters] == ["cpu package 0", "cpu package 1"]


def test_without_powercap_the_reason_says_where_it_looked(tmp_path: Path) -> None:
    missing = tmp_path / "powercap"
    assert reason(find_meters("cpu", powercap=missing)) == (
        f"no RAPL: {missing} is not there (usual in a virtual machine)"
    )


def test_powercap_without_a_package_is_absent(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", name="psys")
    assert "no CPU package" in reason(find_meters("cpu", powercap=tmp_path))


def test_one_unreadable_package_makes_all_absent_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone(tmp_path, "intel-rapl:0", name="package-0")
    closed = zone(tmp_path, "intel-rapl:1", name="package-1") / "energy_uj"
    read_text = Path.read_text

    # Root, as whom tests may run, reads whatever the mode says.
    def refusing(path: Path) -> str:
        if path == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return read_text(path)

    monkeypatch.setattr(Path, "read_text", refusing)
    assert "sudo chmod a+r" in reason(find_meters("cpu", powercap=tmp_path))


def test_a_package_that_stops_answering_says_so(tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", name="package-0")
    (meter,) = found(find_meters("cpu", powercap=tmp_path))
    (package / "energy_uj").unlink()
    assert "RAPL did not answer" in reason(meter.read_j())


def test_the_gpu_meter_reads_joules_and_lets_go(fake_nvml: FakeNvml) -> None:
    (meter,) = found(find_meters("gpu", 1))
    assert meter.covers == "gpu 1, whole board"
    assert meter.update_period_s == 0.1
    fake_nvml.set(energy_mj=12_345)
    assert meter.read_j() == 12.345
    fake_nvml.set(energy_status=3)
    assert "Not Supported" in reason(meter.read_j())
    meter.close()
    assert fake_nvml.users == 0


def test_the_gpu_meter_goes_by_uuid_where_there_is_one(fake_nvml: FakeNvml) -> None:
    (meter,) = found(find_meters("gpu", 0, gpu_uuid="74c2-1"))
    assert meter.covers == "gpu 74c2-1, whole board"


def test_a_board_without_the_counter_is_absent_and_let_go(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(energy_status=3)
    assert "no energy counter" in reason(find_meters("gpu"))
    assert fake_nvml.users == 0


def test_a_gpu_that_is_not_there_is_absent(fake_nvml: FakeNvml) -> None:
    assert "Invalid Argument" in reason(find_meters("gpu", 9))


def test_without_a_driver_there_is_no_gpu_meter(no_driver: None) -> None:
    assert "libnot-here" in reason(find_meters("gpu"))


@pytest.mark.gpu
def test_a_real_board_counts_joules() -> None:
    import time

    meters = find_meters("gpu")
    if isinstance(meters, Absent):
        pytest.skip(meters.reason)
    (meter,) = meters
    before_j = meter.read_j()
    time.sleep(0.5)
    after_j = meter.read_j()
    assert isinstance(before_j, float)
    assert isinstance(after_j, float)
    assert 1 < (after_j - before_j) / 0.5 < 2000
    meter.close()
