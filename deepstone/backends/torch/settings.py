"""The request's axes as torch settings: what torch itself would do where the request says `auto`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import torch
from torch import nn

from deepstone.backends.base import Group, Missing, Unsupported, own_gpu
from deepstone.backends.missing import no_gpu
from deepstone.backends.settings import StepSettings, refuse_broken_rules, step_settings
from deepstone.setups.axes import AUTO, TORCH

_AUTOCAST = {"bf16-mixed": torch.bfloat16, "fp16-mixed": torch.float16}
BENCHMARK_ALL = "benchmark-all"
ALL = 0  # as torch's limit of algorithms to try
_BENCHMARK_LIMIT = torch.backends.cudnn.benchmark_limit  # torch's own: those that cuDNN ranks highest
_COORDINATE_DESCENT = "coordinate-descent"  # no mode of torch's own
_WEIGHTS = {"bf16": torch.bfloat16, "fp64": torch.float64}


class LoweringOptions(TypedDict):
    dropout: bool
    space_to_depth: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings(StepSettings):
    """What the rest of the backend needs to know; process-wide switches are already set."""

    device: torch.device
    autocast: torch.dtype | None  # the type of automatic casting, if any
    weights: torch.dtype
    channels_last: bool
    compile_mode: str | None

    @property
    def lowering(self) -> LoweringOptions:
        """What decides how layers become modules."""
        return {"dropout": self.dropout, "space_to_depth": self.space_to_depth}

    def place(self, network: nn.Module) -> None:
        """Put a network where, and in the format and mode in which, the job runs it."""
        network.train(self.training)
        network.to(self.device, dtype=self.weights)
        if self.channels_last:
            network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]

    def casting(self) -> contextlib.AbstractContextManager[Any]:
        if self.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast)


def inductor_options(mode: str) -> dict[str, Any]:
    """Return the options of Inductor that a value of the axis `compile` means."""
    from torch._inductor import list_mode_options

    if mode == _COORDINATE_DESCENT:
        return {"coordinate_descent_tuning": True}
    return {} if mode == "default" else dict(list_mode_options(mode))


def compile_arguments(mode: str) -> dict[str, Any]:
    """Return what `torch.compile` takes for a value of the axis `compile`."""
    return {"options": inductor_options(mode)} if mode == _COORDINATE_DESCENT else {"mode": mode}


def apply(request: Mapping[str, Any], group: Group | None = None) -> Settings:
    """Resolve the device, refuse what cannot be, set the process-wide switches."""
    device = _device(str(request["device"]), group)
    refuse_broken_rules(request, TORCH, "cpu" if device.type == "cpu" else f"gpu:{device.index}")
    _set_threads(request)
    _set_engine(str(request["engine"]), device)
    _set_algorithm(str(request["algorithm"]))
    precision = str(request["precision"])
    _set_fp32_precision(precision)
    _check_precision(precision, device)
    return Settings(
        device=device,
        autocast=_AUTOCAST.get(precision),
        weights=_WEIGHTS.get(precision, torch.float32),
        channels_last=request["layout"] == "nhwc",
        compile_mode=None if request["compile"] in (AUTO, "off") else str(request["compile"]),
        **step_settings(request),
    )


def _device(name: str, group: Group | None) -> torch.device:
    """`auto` gives every process of a job a GPU of its own."""
    if name == "cpu" or (name == AUTO and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise Missing(no_gpu(name, TORCH, has_build=bool(torch.version.cuda)))
    index = own_gpu(name, group, torch.cuda.device_count())
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def _set_threads(request: Mapping[str, Any]) -> None:
    if request["inter_threads"] != AUTO:
        # Once these threads run, torch refuses. What is read back later tells whether they are as many as asked.
        with contextlib.suppress(RuntimeError):
            torch.set_num_interop_threads(int(request["inter_threads"]))
    if request["threads"] != AUTO:
        torch.set_num_threads(int(request["threads"]))


def _set_engine(engine: str, device: torch.device) -> None:
    if device.type == "cpu" and engine == "onednn" and not torch.backends.mkldnn.is_available():
        raise Unsupported("this torch is built without oneDNN")
    if engine != "native":
        return
    if device.type == "cpu":  # im2col and matrix products: neither oneDNN nor NNPACK
        torch.backends.mkldnn.set_flags(False)
        torch.backends.nnpack.set_flags(False)
    else:
        torch.backends.cudnn.enabled = False


def _set_algorithm(algorithm: str) -> None:
    torch.backends.cudnn.benchmark = algorithm in ("benchmark", BENCHMARK_ALL)
    torch.backends.cudnn.benchmark_limit = ALL if algorithm == BENCHMARK_ALL else _BENCHMARK_LIMIT
    if algorithm == "deterministic":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


def _set_fp32_precision(precision: str) -> None:
    if precision == AUTO or precision == "tf32-conv":
        if precision == "tf32-conv":
            torch.backends.cudnn.conv.fp32_precision = "tf32"  # pyright: ignore[reportAttributeAccessIssue]
            torch.backends.cuda.matmul.fp32_precision = "ieee"
        return
    mode = "tf32" if precision == "tf32" else "ieee"
    torch.backends.cudnn.conv.fp32_precision = mode  # pyright: ignore[reportAttributeAccessIssue]
    torch.backends.cuda.matmul.fp32_precision = mode


def _check_precision(precision: str, device: torch.device) -> None:
    if device.type == "cuda" and precision.startswith("bf16") and not torch.cuda.is_bf16_supported():
        raise Unsupported(f"{torch.cuda.get_device_name(device)} has no bf16")
    if device.type == "cuda" and precision.startswith("tf32") and torch.cuda.get_device_capability(device) < (8, 0):
        raise Unsupported(f"{torch.cuda.get_device_name(device)} has no TF32 (it came with compute capability 8.0)")
