"""NVIDIA's management library through ctypes: the worker side may hold no package beside NumPy.

Every call gives a value or `Absent`, because NVML may refuse any of them on any board (consumer boards, MIG, vGPU).
"""

from __future__ import annotations

import ctypes
from typing import Final

from deepstone.absent import Absent

LIBRARY: Final = "libnvidia-ml.so.1"

_SUCCESS = 0
_INSUFFICIENT_SIZE = 7
_CLOCK_SM = 1
_TEMPERATURE_GPU = 0
_POLICY_POWER = 0
_POLICY_THERMAL = 1
_TEXT_BYTES = 96
_MOST_PROCESSES = 4096

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


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Violation(ctypes.Structure):
    _fields_ = (("reference_us", ctypes.c_ulonglong), ("violation_ns", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Nvml:
    """An initialized NVML. NVML counts its users, so several may be open in one process; close each."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Use `open_nvml`: a library that is not initialized answers nothing."""
        self._library = library

    def close(self) -> None:
        self.call("nvmlShutdown")

    def call(self, symbol: str, *arguments: object) -> Absent | None:
        """None when NVML did what was asked, else why not."""
        status = self.status(symbol, *arguments)
        if isinstance(status, Absent):
            return status
        return None if status == _SUCCESS else self.refusal(symbol, status)

    def status(self, symbol: str, *arguments: object) -> int | Absent:
        """NVML's own return code, for the calls where one that is not zero is no failure."""
        try:
            function = self._library[symbol]
        except AttributeError:
            return Absent(f"this driver's NVML has no {symbol}: a newer driver may")
        return int(function(*arguments))

    def driver_version(self) -> str | Absent:
        return self.text("nvmlSystemGetDriverVersion")

    def device_count(self) -> int | Absent:
        count = ctypes.c_uint()
        failed = self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        return count.value if failed is None else failed

    def device(self, index: int) -> NvmlDevice | Absent:
        """NVML counts by PCI bus; CUDA may not (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER): prefer the UUID if known."""
        handle = ctypes.c_void_p()
        failed = self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return NvmlDevice(self, handle) if failed is None else failed

    def device_by_uuid(self, uuid: str) -> NvmlDevice | Absent:
        """Takes "GPU-…" as nvidia-smi prints it, and the bare hexadecimal form that torch gives."""
        full = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        handle = ctypes.c_void_p()
        failed = self.call("nvmlDeviceGetHandleByUUID", ctypes.c_char_p(full.encode()), ctypes.byref(handle))
        return NvmlDevice(self, handle) if failed is None else failed

    def text(self, symbol: str, *before: object) -> str | Absent:
        """What a call writes into a character buffer, given after the arguments `before`."""
        buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        failed = self.call(symbol, *before, buffer, ctypes.c_uint(_TEXT_BYTES))
        return buffer.value.decode(errors="replace") if failed is None else failed

    def refusal(self, symbol: str, status: int) -> Absent:
        describe = self._library.nvmlErrorString
        describe.restype = ctypes.c_char_p
        said: bytes = describe(ctypes.c_int(status)) or b"unknown error"
        return Absent(f"NVML refused {symbol}: {said.decode(errors='replace')}")


def open_nvml(library_path: str = LIBRARY) -> Nvml | Absent:
    """Load and initialize NVML. Takes up to a second where no other program holds the driver open."""
    try:
        library = ctypes.CDLL(library_path)
    except OSError as error:
        return Absent(f"no NVIDIA driver here: {error}")
    nvml = Nvml(library)
    failed = nvml.call("nvmlInit_v2")
    return nvml if failed is None else failed


class NvmlDevice:
    """One GPU as NVML sees it; of use as long as its `Nvml` is open."""

    def __init__(self, nvml: Nvml, handle: ctypes.c_void_p) -> None:
        self._nvml = nvml
        self._handle = handle

    def name(self) -> str | Absent:
        return self._nvml.text("nvmlDeviceGetName", self._handle)

    def uuid(self) -> str | Absent:
        return self._nvml.text("nvmlDeviceGetUUID", self._handle)

    def index(self) -> int | Absent:
        return self._uint("nvmlDeviceGetIndex")

    def memory_bytes(self) -> int | Absent:
        memory = _Memory()
        failed = self._nvml.call("nvmlDeviceGetMemoryInfo", self._handle, ctypes.byref(memory))
        return int(memory.total) if failed is None else failed

    def energy_j(self) -> float | Absent:
        """Joules of the whole board since the driver was loaded."""
        energy_mj = ctypes.c_ulonglong()
        failed = self._nvml.call("nvmlDeviceGetTotalEnergyConsumption", self._handle, ctypes.byref(energy_mj))
        return energy_mj.value / 1e3 if failed is None else failed

    def sm_clock_mhz(self) -> int | Absent:
        return self._uint("nvmlDeviceGetClockInfo", ctypes.c_uint(_CLOCK_SM))

    def max_sm_clock_mhz(self) -> int | Absent:
        return self._uint("nvmlDeviceGetMaxClockInfo", ctypes.c_uint(_CLOCK_SM))

    def temperature_c(self) -> int | Absent:
        return self._uint("nvmlDeviceGetTemperature", ctypes.c_uint(_TEMPERATURE_GPU))

    def power_limit_w(self) -> float | Absent:
        """The limit that is enforced, whoever set it."""
        limit_mw = self._uint("nvmlDeviceGetEnforcedPowerLimit")
        return limit_mw if isinstance(limit_mw, Absent) else limit_mw / 1e3

    def utilization(self) -> float | Absent:
        """Share of the driver's last sample period (up to a second) in which some kernel ran."""
        rates = _Utilization()
        failed = self._nvml.call("nvmlDeviceGetUtilizationRates", self._handle, ctypes.byref(rates))
        return int(rates.gpu) / 100 if failed is None else failed

    def throttle_reasons(self) -> tuple[str, ...] | Absent:
        """Why the clock is not higher at this moment; empty when nothing holds it back."""
        mask = ctypes.c_ulonglong()
        failed = self._nvml.call("nvmlDeviceGetCurrentClocksEventReasons", self._handle, ctypes.byref(mask))
        if failed is not None:
            # Its name before driver 535.
            failed = self._nvml.call("nvmlDeviceGetCurrentClocksThrottleReasons", self._handle, ctypes.byref(mask))
        return throttle_names(mask.value) if failed is None else failed

    def power_throttled_s(self) -> float | Absent:
        """Seconds, since the driver was loaded, in which the power limit held the clock down."""
        return self._violation_s(_POLICY_POWER)

    def thermal_throttled_s(self) -> float | Absent:
        """Seconds, since the driver was loaded, in which heat held the clock down."""
        return self._violation_s(_POLICY_THERMAL)

    def compute_pids(self) -> tuple[int, ...] | Absent:
        """Processes with a compute context here. In a container they may be numbered as the host numbers them."""
        pids = self._pids("nvmlDeviceGetComputeRunningProcesses_v3")
        # Its name before driver 510; the same structure.
        return self._pids("nvmlDeviceGetComputeRunningProcesses_v2") if isinstance(pids, Absent) else pids

    def _pids(self, symbol: str) -> tuple[int, ...] | Absent:
        room = 32
        while True:
            count = ctypes.c_uint(room)
            processes = (_Process * room)()
            status = self._nvml.status(symbol, self._handle, ctypes.byref(count), processes)
            if isinstance(status, Absent):
                return status
            if status == _SUCCESS:
                return tuple(int(process.pid) for process in processes[: count.value])
            if status != _INSUFFICIENT_SIZE or room >= _MOST_PROCESSES:
                return self._nvml.refusal(symbol, status)
            # Twice what it asks for: more may start before the next call.
            room = min(max(room, count.value) * 2, _MOST_PROCESSES)

    def _uint(self, symbol: str, *before: object) -> int | Absent:
        value = ctypes.c_uint()
        failed = self._nvml.call(symbol, self._handle, *before, ctypes.byref(value))
        return value.value if failed is None else failed

    def _violation_s(self, policy: int) -> float | Absent:
        violation = _Violation()
        failed = self._nvml.call(
            "nvmlDeviceGetViolationStatus", self._handle, ctypes.c_uint(policy), ctypes.byref(violation)
        )
        return int(violation.violation_ns) / 1e9 if failed is None else failed


def throttle_names(mask: int) -> tuple[str, ...]:
    """The bits of NVML's clock event mask by name; one that this file does not know is kept as its number."""
    bits = (1 << position for position in range(mask.bit_length()))
    return tuple(_THROTTLE_REASONS.get(bit, f"unknown_{bit:#x}") for bit in bits if mask & bit)
