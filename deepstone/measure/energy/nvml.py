"""The energy counter of an NVIDIA board."""

from __future__ import annotations

from deepstone.absent import Absent
from deepstone.measure.energy.base import Meter
from deepstone.measure.nvml import Nvml, NvmlDevice, open_nvml

# Measured on an H200 (driver 580), idle and busy: 98 to 103 ms between updates, 3 ms for a reading.
_UPDATE_PERIOD_S = 0.1


class NvmlMeter(Meter):
    """Joules of a whole board, including memory and voltage regulators, for all its users."""

    def __init__(self, nvml: Nvml, device: NvmlDevice, *, label: str) -> None:
        self.name = "nvml"
        self.covers = f"{label}, whole board"
        self.update_period_s = _UPDATE_PERIOD_S
        self._nvml = nvml
        self._device = device

    def read_j(self) -> float | Absent:
        return self._device.energy_j()

    def close(self) -> None:
        self._nvml.close()


def open_nvml_meter(*, gpu_index: int = 0, gpu_uuid: str | None = None) -> NvmlMeter | Absent:
    """Open the meter of one GPU, by UUID if given, else by NVML's index. Read it once, since many boards have none."""
    nvml = open_nvml()
    if isinstance(nvml, Absent):
        return nvml
    meter = _meter_of(nvml, gpu_index=gpu_index, gpu_uuid=gpu_uuid)
    if isinstance(meter, Absent):
        nvml.close()
    return meter


def _meter_of(nvml: Nvml, *, gpu_index: int, gpu_uuid: str | None) -> NvmlMeter | Absent:
    device = nvml.device(gpu_index) if gpu_uuid is None else nvml.device_by_uuid(gpu_uuid)
    if isinstance(device, Absent):
        return device
    first_j = device.energy_j()
    if isinstance(first_j, Absent):
        return Absent(f"this GPU has no energy counter: {first_j.reason}")
    return NvmlMeter(nvml, device, label=f"gpu {gpu_index if gpu_uuid is None else gpu_uuid}")
