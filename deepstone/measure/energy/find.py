"""Which energy meters this machine has for a device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from deepstone.absent import Absent
from deepstone.measure.energy.base import Meter
from deepstone.measure.energy.nvml import open_nvml_meter
from deepstone.measure.energy.rapl import POWERCAP, open_rapl_meters
from deepstone.measure.nvml import LIBRARY


def find_meters(
    device: Literal["cpu", "gpu"],
    gpu_index: int = 0,
    *,
    gpu_uuid: str | None = None,
    powercap: Path = POWERCAP,
    nvml_library: str = LIBRARY,
) -> Sequence[Meter] | Absent:
    """The meters that together cover the device, opened; close each. Absent, with the reason, where there is none.

    NVML's index goes by PCI bus and CUDA's need not, so give the UUID where it is known.
    """
    if device == "cpu":
        return open_rapl_meters(powercap)
    meter = open_nvml_meter(gpu_index=gpu_index, gpu_uuid=gpu_uuid, library_path=nvml_library)
    return meter if isinstance(meter, Absent) else [meter]
