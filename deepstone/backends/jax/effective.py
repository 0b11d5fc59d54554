"""The effective value of every axis in JAX, from its running state and from the programs of the first step.

Programs are read as JAX lowered them and as XLA compiled them. A requested value is never reported as observed: if
nothing was observed, the value is reported as set.
"""

from __future__ import annotations

import ctypes
import math
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from deepstone.backends.base import as_observed, as_set
from deepstone.backends.effective import effective, listed, precision_seen, precisions
from deepstone.backends.jax.settings import Settings
from deepstone.backends.jax.training import State
from deepstone.setups.axes import AUTO

# The names that XLA gives the threads of its CPU client's pool.
_POOL_THREADS = ("tf_XLAEigen",)

_CONVOLUTION = re.compile(
    r"stablehlo\.convolution\(.*?dim_numbers = \[(?P<order>[^\]]*)\].*?-> tensor<(?:\d+x)*(?P<type>\w+)>"
)
_PRODUCT = re.compile(r"stablehlo\.dot_general .*?-> tensor<(?:\d+x)*(?P<type>\w+)>")
_PRECISION_OF = {"f32": "fp32", "bf16": "bf16", "f16": "fp16", "f64": "fp64"}
_ORDER_OF = {"b, 0, 1, f": "nhwc", "b, f, 0, 1": "nchw"}

_HIGHEST = "HIGHEST"  # fp32 products in fp32; on a GPU XLA may narrow those of any lower precision

_COMPILED_CONVOLUTION = re.compile(r"dim_labels=(\S+?)(?:,|\s|$)")
_LIBRARY_FUSION = re.compile(r'"fusion_config":\{"kind":"(__\w+)"')
_REDUCTION = re.compile(r" = (?P<arrays>\(.*?\)|\S+) all-reduce(?:-start)?\(")
_ARRAY = re.compile(r"(?P<type>[a-z]+)(?P<bits>\d+)\[(?P<sides>[\d,]*)\]")
_CUSTOM_CALL = re.compile(r'custom_call_target="([^"]+)"')


@dataclass(kw_only=True, slots=True)
class Observed:
    """Facts about the convolutions and matrix products in programs."""

    layouts: set[str] = field(default_factory=set[str])  # of convolutions, if it is a value of the axis
    number_types: set[str] = field(default_factory=set[str])
    convolutions_narrowed: set[bool] = field(default_factory=set[bool])  # whether XLA may use TF32 for fp32 there
    products_narrowed: set[bool] = field(default_factory=set[bool])


def seen_in(lowered: Iterable[str]) -> Observed:
    """Read facts from the texts of lowered programs, in StableHLO."""
    seen = Observed()
    for text in lowered:
        for line in text.splitlines():
            convolution, product = _CONVOLUTION.search(line), _PRODUCT.search(line)
            if convolution is not None:
                seen.layouts |= {_ORDER_OF[order] for order in (convolution["order"],) if order in _ORDER_OF}
                seen.convolutions_narrowed.add(_HIGHEST not in line)
            elif product is not None:
                seen.products_narrowed.add(_HIGHEST not in line)
            found = convolution or product
            if found is not None:
                seen.number_types.add(_PRECISION_OF.get(found["type"], found["type"]))
    return seen


def made_by_xla(compiled: Iterable[str]) -> dict[str, dict[str, int]]:
    """Read facts from the texts of compiled programs: how often they use which library, and the layout of convolutions.

    On the CPU, a fusion of the kind `__ynn_fusion` runs in YNNPACK and `__onednn_fusion` in oneDNN; other convolutions
    and matrix products run in Eigen. On a GPU, calls of `__cudnn$…` and `__cublas$…` run in these libraries.
    """
    fusions, calls, convolutions = Counter[str](), Counter[str](), Counter[str]()
    for text in compiled:
        fusions.update(_LIBRARY_FUSION.findall(text))
        calls.update(_CUSTOM_CALL.findall(text))
        convolutions.update(_COMPILED_CONVOLUTION.findall(text))
    return {"library_fusions": dict(fusions), "custom_calls": dict(calls), "convolutions": dict(convolutions)}


def reductions_of(compiled: str) -> list[int]:
    """Read the bytes of each reduction over processes from the text of a compiled program, in order."""
    return [
        sum(
            int(array["bits"]) // 8 * math.prod(int(side) for side in array["sides"].split(",") if side)
            for array in _ARRAY.finditer(found["arrays"])
        )
        for found in _REDUCTION.finditer(compiled)
    ]


def temporary_bytes(program: Any) -> int:
    """Return the memory of a compiled program without its inputs and outputs; 0 if XLA does not report it."""
    memory = program.memory_analysis()
    return 0 if memory is None else int(memory.temp_size_in_bytes)


def _pool_threads() -> int:
    """Return the number of threads that XLA's CPU client has for operations."""
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith(_POOL_THREADS) for name in names)


def gpu_uuid(device: Any) -> str | None:
    """Return the UUID of a GPU, as nvidia-smi prints it. JAX does not report it; the CUDA driver in the process does.

    Returns None if the driver does not report it or is not NVIDIA's.
    """
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Effects:
    """The effective value of every axis. A requested value is used only if nothing was observed."""

    request: Mapping[str, Any]
    settings: Settings
    seen: Observed
    compiled: Sequence[Any]  # the programs of the steps, as XLA compiled them
    state: State

    def of_every_axis(self) -> dict[str, dict[str, Any]]:
        on_cpu = self.settings.on_cpu
        by_xla = all(isinstance(program, jax.stages.Compiled) for program in self.compiled)
        set_to = {"inter_threads": "not used", "threads": "not used", "isa": "no limit" if on_cpu else "not used"}
        observed: dict[str, Any] = {
            "framework": f"jax@{jax.__version__}",
            "device": self._device(),
            "compile": "default" if by_xla else "off",
            "engine": "xla",  # every operation is compiled, one by one where the step is not
        }
        if on_cpu:
            observed["threads"] = _pool_threads()
        return effective(self.request, set_to, observed) | {
            "algorithm": self._algorithm(),
            "precision": self._precision(),
            "layout": self._layout(),
        }

    def _device(self) -> str:
        arrays = (*self.state.parameters, self.state.loss)
        devices = {device for array in arrays for device in array.sharding.addressable_devices}
        return listed("cpu" if device.platform == "cpu" else f"gpu:{device.id}" for device in devices)

    def _algorithm(self) -> dict[str, Any]:
        """Return the value for an option of XLA's GPU compiler, which refuses unknown values but does not report its
        choice."""
        asked = self.request["algorithm"]
        if asked != AUTO:
            return as_set(asked)
        return as_set("heuristic" if self.settings.on_cpu else "benchmark")  # see settings.py

    def _precision(self) -> dict[str, Any]:
        settings, seen = self.settings, self.seen
        if not seen.number_types:
            return as_set(settings.precision)
        weights = precisions(str(array.dtype) for array in self.state.parameters)
        found = precision_seen(weights, seen.number_types)
        if found != "fp32" or settings.on_cpu:
            return as_observed(found)
        if settings.precision == "fp32" and self.request["precision"] == AUTO:
            return as_set("fp32")  # this GPU has no TF32
        return narrowed(settings.precision, seen)

    def _layout(self) -> dict[str, Any]:
        layouts = self.seen.layouts
        return as_observed(listed(layouts)) if layouts else as_set(self.settings.order.name)


def narrowed(expected: str, seen: Observed) -> dict[str, Any]:
    """Return the precision of fp32 products on a GPU: the program says whether XLA may use TF32, not whether it
    does."""
    allowed = {"tf32": (True, True), "tf32-conv": (True, False), "fp32": (False, False)}
    fitting = [
        name
        for name, (convolution, product) in allowed.items()
        if seen.convolutions_narrowed <= {convolution} and seen.products_narrowed <= {product}
    ]
    if fitting == ["fp32"]:
        return as_observed("fp32")
    if expected in fitting:
        return as_set(expected)
    return as_observed(fitting[0] if fitting else "fp32 in some products and tf32 in others")
