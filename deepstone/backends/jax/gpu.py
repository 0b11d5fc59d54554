"""Which board a GPU of JAX is. JAX does not tell; the CUDA driver in the same process does, and numbers them alike."""

from __future__ import annotations

import ctypes
import uuid
from typing import Any


def gpu_uuid(device: Any) -> str | None:
    """As nvidia-smi writes it, or None where the driver does not say (or is none of NVIDIA's)."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    handle, found = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    # JAX's local number of a device is its CUDA ordinal, which CUDA_VISIBLE_DEVICES has already acted upon.
    if driver.cuDeviceGet(ctypes.byref(handle), ctypes.c_int(device.local_hardware_id)) != 0:
        return None
    if driver.cuDeviceGetUuid(ctypes.byref(found), handle) != 0:
        return None
    return f"GPU-{uuid.UUID(bytes=bytes(found))}"
