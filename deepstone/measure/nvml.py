"""NVIDIA's management library (NVML) through the package nvidia-ml-py, in SI units.

Every call returns a value or `Absent`: NVML may refuse any call on any board (consumer boards, MIG, vGPU), and many
machines have no driver.
"""

from __future__ import annotations

import ctypes
import importlib
from types import ModuleType
from typing import Any, Final

from deepstone.absent import Absent

LIBRARY: Final = "libnvidia-ml.so.1"

_THROTTLE_REASONS: Final = {
    0x001: "gpu_idle",
    0x002: "applications_clocks",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal",
    0x040: "hw_thermal",
    0x080: "hw_power_brake",
    0x100: "display_clock",
    0x200: "board_limit",
    0x400: "reliability",
}


class Nvml:
    """An initialized NVML. NVML counts its users, so several may be open in one process; close each."""

    def __init__(self, api: ModuleType) -> None:
        """Use `open_nvml`, which initializes the library. `api` is pynvml."""
        self.api = api

    def close(self) -> None:
        self.query("nvmlShutdown")

    def query(self, call: str, *arguments: object, unsupported: object = None) -> Any:
        """Call pynvml's function of this name. Return `Absent` with the reason if the driver refuses.

        `unsupported`: the value to return if the board does not support the call.
        """
        try:
            return getattr(self.api, call)(*arguments)
        except self.api.NVMLError_NotSupported as error:
            return Absent(f"NVML refused {call}: {error}") if unsupported is None else unsupported
        except self.api.NVMLError_FunctionNotFound:
            return Absent(f"this driver's NVML has no {call}: a newer driver may")
        except self.api.NVMLError as error:
            return Absent(f"NVML refused {call}: {error}")

    def driver_version(self) -> str | Absent:
        return self.query("nvmlSystemGetDriverVersion")

    def device_count(self) -> int | Absent:
        return self.query("nvmlDeviceGetCount")

    def device(self, index: int) -> NvmlDevice | Absent:
        """NVML numbers by PCI bus; CUDA may not (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER): prefer the UUID."""
        return self._device("nvmlDeviceGetHandleByIndex", index)

    def device_by_uuid(self, uuid: str) -> NvmlDevice | Absent:
        """Accepts "GPU-…" as nvidia-smi prints it, and the bare hexadecimal form of torch.

        CUDA has the same form for an instance of a divided board, which NVML calls "MIG-…".
        """
        bare = uuid.removeprefix("GPU-").removeprefix("MIG-")
        kinds = ("MIG-",) if uuid.startswith("MIG-") else ("GPU-", "MIG-")
        found = [self._device("nvmlDeviceGetHandleByUUID", kind + bare) for kind in kinds]
        return next((device for device in found if not isinstance(device, Absent)), found[0])

    def _device(self, call: str, name: int | str) -> NvmlDevice | Absent:
        handle = self.query(call, name)
        return handle if isinstance(handle, Absent) else NvmlDevice(self, handle)


def open_nvml() -> Nvml | Absent:
    """Load and initialize NVML. This takes up to a second if no other program has the driver open."""
    try:
        ctypes.CDLL(LIBRARY)  # first: on machines without a driver the import of pynvml would cost 30 ms for nothing
    except OSError as error:
        return Absent(f"no NVIDIA driver here: {error}")
    try:
        nvml = Nvml(importlib.import_module("pynvml"))
    except ModuleNotFoundError:
        return Absent("nvidia-ml-py is not installed: pip install nvidia-ml-py")
    refused = nvml.query("nvmlInit")
    return refused if isinstance(refused, Absent) else nvml


class NvmlDevice:
    """One GPU as NVML sees it; valid while its `Nvml` is open."""

    def __init__(self, nvml: Nvml, handle: object) -> None:
        self._nvml = nvml
        self._handle = handle

    def name(self) -> str | Absent:
        return self._query("nvmlDeviceGetName")

    def uuid(self) -> str | Absent:
        return self._query("nvmlDeviceGetUUID")

    def memory_bytes(self) -> int | Absent:
        memory = self._query("nvmlDeviceGetMemoryInfo")
        return memory if isinstance(memory, Absent) else int(memory.total)

    def used_bytes(self) -> int | Absent:
        """Return the memory of all processes, without the driver's own."""
        memory = self._query("nvmlDeviceGetMemoryInfo", self._nvml.api.nvmlMemory_v2)
        return memory if isinstance(memory, Absent) else int(memory.used)

    def mig_is_on(self) -> bool | Absent:
        """Whether the board is divided into instances; True for an instance."""
        inside = self._query("nvmlDeviceIsMigDeviceHandle")
        if not isinstance(inside, Absent) and inside.value:
            return True
        cannot_be_divided = (0, 0)
        modes = self._nvml.query("nvmlDeviceGetMigMode", self._handle, unsupported=cannot_be_divided)
        return modes if isinstance(modes, Absent) else bool(modes[0])

    def energy_j(self) -> float | Absent:
        """Return the joules of the whole board since the driver was loaded."""
        energy_mj = self._query("nvmlDeviceGetTotalEnergyConsumption")
        return energy_mj if isinstance(energy_mj, Absent) else energy_mj / 1e3

    def sm_clock_mhz(self) -> int | Absent:
        return self._query("nvmlDeviceGetClockInfo", self._nvml.api.NVML_CLOCK_SM)

    def max_sm_clock_mhz(self) -> int | Absent:
        return self._query("nvmlDeviceGetMaxClockInfo", self._nvml.api.NVML_CLOCK_SM)

    def cuda_cores(self) -> int | Absent:
        return self._query("nvmlDeviceGetNumGpuCores")

    def compute_capability(self) -> str | Absent:
        """As CUDA writes it: "9.0"."""
        capability = self._query("nvmlDeviceGetCudaComputeCapability")
        return capability if isinstance(capability, Absent) else "{}.{}".format(*capability)

    def utilization(self) -> float | Absent:
        """Return the share of the driver's last sample period (up to a second) in which some kernel ran."""
        rates = self._query("nvmlDeviceGetUtilizationRates")
        return rates if isinstance(rates, Absent) else int(rates.gpu) / 100

    def throttle_reasons(self) -> tuple[str, ...] | Absent:
        """Return why the clock is not higher at this moment; empty if nothing limits it."""
        # The second name is that before driver 535.
        mask = self._first_of("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        return mask if isinstance(mask, Absent) else throttle_names(mask)

    def power_throttled_s(self) -> float | Absent:
        """Return the seconds since the driver was loaded in which the power limit lowered the clock."""
        return self._violation_s(self._nvml.api.NVML_PERF_POLICY_POWER)

    def thermal_throttled_s(self) -> float | Absent:
        """Return the seconds since the driver was loaded in which heat lowered the clock."""
        return self._violation_s(self._nvml.api.NVML_PERF_POLICY_THERMAL)

    def compute_pids(self) -> tuple[int, ...] | Absent:
        """Return the processes with a compute context. In a container they may have the host's numbers."""
        return self._pids("nvmlDeviceGetComputeRunningProcesses")

    def graphics_pids(self) -> tuple[int, ...] | Absent:
        """Return the processes with a graphics context, such as a desktop's."""
        return self._pids("nvmlDeviceGetGraphicsRunningProcesses")

    def _pids(self, call: str) -> tuple[int, ...] | Absent:
        # The second name is that before driver 510.
        processes = self._first_of(f"{call}_v3", f"{call}_v2")
        return processes if isinstance(processes, Absent) else tuple(int(process.pid) for process in processes)

    def _violation_s(self, policy: int) -> float | Absent:
        violation = self._query("nvmlDeviceGetViolationStatus", policy)
        return violation if isinstance(violation, Absent) else int(violation.violationTime) / 1e9

    def _first_of(self, call: str, older: str) -> Any:
        found = self._query(call)
        return self._query(older) if isinstance(found, Absent) else found

    def _query(self, call: str, *arguments: object) -> Any:
        return self._nvml.query(call, self._handle, *arguments)


def throttle_names(mask: int) -> tuple[str, ...]:
    """Return the names of the bits of NVML's clock event mask; an unknown bit appears as its number."""
    bits = (1 << position for position in range(mask.bit_length()))
    return tuple(_THROTTLE_REASONS.get(bit, f"unknown_{bit:#x}") for bit in bits if mask & bit)
