from __future__ import annotations

import json

import pytest

from deepstone.absent import Absent
from deepstone.measure.energy.base import Meter
from deepstone.measure.energy.window import EnergyReading, MeterReading, energy_of_all, energy_over, read_meters
from deepstone.results.record import Energy

# An H200 under a matrix product: its counter after each of its 100 ms periods.
RECORDED_J = [4564.434, 4596.554, 4630.334, 4662.944, 4699.054, 4730.774, 4765.564, 4801.724, 4834.1, 4868.9, 4902.3]


class ReplayedMeter(Meter):
    def __init__(self, readings_j: list[float | Absent], *, covers: str = "gpu 0, whole board") -> None:
        self.name = "replayed"
        self.covers = covers
        self.update_period_s = 0.1
        self._readings_j = iter(readings_j)

    def read_j(self) -> float | Absent:
        return next(self._readings_j)

    def close(self) -> None:
        pass


def at(time_s: float, *energy_j: float | Absent, update_period_s: float = 0.1) -> EnergyReading:
    meters = tuple(
        MeterReading(name="nvml", covers=f"gpu {index}", update_period_s=update_period_s, energy_j=reading)
        for index, reading in enumerate(energy_j)
    )
    return EnergyReading(at_s=time_s, meters=meters)


def reason(energy: Energy | Absent) -> str:
    assert isinstance(energy, Absent)
    return energy.reason


def test_a_recorded_window() -> None:
    energy = energy_over(at(7.0, RECORDED_J[0]), at(8.0, RECORDED_J[-1]), steps=20, samples=20 * 256)
    assert isinstance(energy, Energy)
    assert energy.joules == pytest.approx(337.866)
    assert energy.joules_per_step == pytest.approx(16.8933)
    assert energy.samples_per_j == pytest.approx(5120 / 337.866)
    assert energy.average_power_w == pytest.approx(337.866)
    assert energy.window_s == 1.0
    assert energy.resolution_share == pytest.approx(0.1)


def test_several_meters_add_up() -> None:
    energy = energy_over(at(0.0, 10.0, 100.0), at(2.0, 70.0, 140.0), steps=4, samples=8)
    assert isinstance(energy, Energy)
    assert energy.joules == 100.0
    assert [meter.joules for meter in energy.meters] == [60.0, 40.0]


def test_json_holds_the_meters_and_is_plain() -> None:
    energy = energy_over(at(0.0, 10.0), at(2.0, 70.0), steps=4, samples=8)
    assert isinstance(energy, Energy)
    assert json.loads(json.dumps(energy.to_json())) == {
        "joules": 60.0,
        "joules_per_step": 15.0,
        "samples_per_j": 8 / 60,
        "average_power_w": 30.0,
        "window_s": 2.0,
        "resolution_share": 0.05,
        "meters": [{"name": "nvml", "covers": "gpu 0", "joules": 60.0, "update_period_s": 0.1}],
    }


def test_windows_of_several_launches_add_up() -> None:
    windows = [
        energy_over(at(0.0, 10.0), at(2.0, 70.0), steps=4, samples=8),
        energy_over(at(5.0, 100.0), at(6.0, 110.0), steps=1, samples=2),
    ]
    whole = energy_of_all([window for window in windows if isinstance(window, Energy)])
    assert (whole.joules, whole.window_s) == (70.0, 3.0)
    assert whole.joules_per_step == pytest.approx(70 / 5)
    assert whole.samples_per_j == pytest.approx(10 / 70)
    assert whole.average_power_w == pytest.approx(70 / 3)
    assert whole.resolution_share == pytest.approx(0.2 / 3)  # each window may be off by one update period
    assert [meter.joules for meter in whole.meters] == [70.0]


def test_a_window_under_ten_update_periods_is_absent() -> None:
    assert "needs 1 s" in reason(energy_over(at(0.0, 1.0), at(0.999, 300.0), steps=1, samples=1))
    fast = energy_over(at(0.0, 1.0, update_period_s=1e-3), at(0.01, 3.0, update_period_s=1e-3), steps=1, samples=1)
    assert isinstance(fast, Energy)


@pytest.mark.parametrize(
    ("end_j", "words"), [(5.0, "stood still"), (4.0, "fell"), (Absent("GPU is lost"), "GPU is lost")]
)
def test_a_counter_that_does_not_count_is_absent(end_j: float | Absent, words: str) -> None:
    assert words in reason(energy_over(at(0.0, 5.0), at(2.0, end_j), steps=1, samples=1))


def test_one_dead_meter_of_two_makes_the_sum_absent() -> None:
    assert "stood still" in reason(energy_over(at(0.0, 1.0, 1.0), at(2.0, 9.0, 1.0), steps=1, samples=1))


def test_without_steps_or_meters_there_is_no_energy() -> None:
    assert "no step" in reason(energy_over(at(0.0, 1.0), at(2.0, 9.0), steps=0, samples=0))
    assert "no meter" in reason(energy_over(at(0.0), at(2.0), steps=1, samples=1))


def test_reading_asks_every_meter_once() -> None:
    meters = [ReplayedMeter([1.0, 2.0]), ReplayedMeter([Absent("gone")], covers="gpu 1, whole board")]
    reading = read_meters(meters)
    assert [meter.energy_j for meter in reading.meters] == [1.0, Absent("gone")]
    assert [meter.covers for meter in reading.meters] == ["gpu 0, whole board", "gpu 1, whole board"]
    assert read_meters(meters[:1]).at_s >= reading.at_s
