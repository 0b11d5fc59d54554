"""The effective value of every axis in torch, from its running state and from the tensors of the first step.

A requested value is never reported as observed: if nothing was observed, the value is reported as set.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn

from deepstone.backends.base import as_observed, as_set
from deepstone.backends.effective import effective, listed, precision_seen, precisions
from deepstone.backends.onednn_log import captured_stdout
from deepstone.backends.torch.lower import BlockConv
from deepstone.backends.torch.onednn import implementations, narrowed_products, onednn_dtypes, widest_isa
from deepstone.backends.torch.settings import ALL, BENCHMARK_ALL, Settings, inductor_options
from deepstone.setups.axes import ISA_ORDER

_ISA_OF_CAPABILITY = {"DEFAULT": "sse41", "AVX2": "avx2", "AVX512": "avx512_core"}
_MODES = ("default", "reduce-overhead", "coordinate-descent", "max-autotune-no-cudagraphs", "max-autotune")


@dataclass(kw_only=True, slots=True)
class Observed:
    """Facts about the outputs of all convolutions and dense layers, and about oneDNN."""

    dtypes: set[torch.dtype] = field(default_factory=set[torch.dtype])
    layouts: set[str] = field(default_factory=set[str])  # of images with a distinguishable memory order
    devices: set[torch.device] = field(default_factory=set[torch.device])
    primitives: dict[str, list[str]] = field(default_factory=dict[str, list[str]])  # operation -> implementations
    onednn_log: str = ""


@contextmanager
def observing(modules: Iterable[nn.Module], *, hooks: bool, onednn: bool) -> Generator[Observed, None, None]:
    """Fill an Observed from the steps run inside. `hooks` off: hooks would make torch compile again."""
    seen = Observed()
    handles = _hook(modules, seen) if hooks else []
    try:
        if onednn:
            with captured_stdout() as log, torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
                yield seen
            seen.onednn_log = log[0]
            seen.primitives = implementations(log[0])
        else:
            yield seen
    finally:
        for handle in handles:
            handle.remove()


def _hook(modules: Iterable[nn.Module], seen: Observed) -> list[Any]:
    def see(_module: nn.Module, _inputs: Any, output: Any) -> None:
        if not isinstance(output, Tensor):  # of a user's own kind of layer
            return
        seen.dtypes.add(output.dtype)
        seen.devices.add(output.device)
        layout = _layout_of(output)
        if layout is not None:
            seen.layouts.add(layout)

    return [module.register_forward_hook(see) for module in modules if isinstance(module, nn.Conv2d | nn.Linear)]


def _layout_of(images: Tensor) -> str | None:
    """Return the memory order of images or of a convolution's weights; None if both orders are the same."""
    if images.dim() != 4 or images.shape[1] == 1 or images.shape[2] * images.shape[3] == 1:
        return None
    if images.is_contiguous():
        return "nchw"
    return "nhwc" if images.is_contiguous(memory_format=torch.channels_last) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Effects:
    """The effective value of every axis. A requested value is used only if nothing was observed."""

    request: Mapping[str, Any]
    settings: Settings
    seen: Observed
    network: nn.Module  # as lowered
    model: nn.Module  # what runs it
    loss: Tensor  # of the last step
    opaque: bool  # a module of the user's own is in the network, and may do as it likes

    def of_every_axis(self) -> dict[str, dict[str, Any]]:
        observed = {
            "framework": f"torch@{torch.__version__.partition('+')[0]}",
            "device": self._device(),
            "threads": torch.get_num_threads(),
            "inter_threads": torch.get_num_interop_threads(),
            "algorithm": self._algorithm(),
            "engine": self._engine(),
            "space_to_depth": "on" if any(isinstance(each, BlockConv) for each in self.network.modules()) else "off",
        }
        waiting = os.environ.get("OMP_WAIT_POLICY", str(self.request["wait"])).lower()  # OpenMP does not report it
        return effective(self.request, {"wait": waiting if self._on_cpu else "not used"}, observed) | {
            "compile": self._compile(),
            "precision": self.of_precision(),
            "layout": self._layout(),
            "isa": self._isa(),
        }

    @property
    def _on_cpu(self) -> bool:
        return self.settings.device.type == "cpu"

    def _device(self) -> str:
        parameters = {parameter.device for parameter in self.network.parameters()}
        devices = parameters | self.seen.devices | {self.loss.device}
        return listed("cpu" if device.type == "cpu" else f"gpu:{device.index or 0}" for device in devices)

    def _compile(self) -> dict[str, Any]:
        mode = self.settings.compile_mode
        if mode is None:
            return as_observed("off" if self.model is self.network else "default")
        return mode_in_use(type(self.network).forward.__code__, mode)

    def _algorithm(self) -> str:
        if torch.are_deterministic_algorithms_enabled():
            return "deterministic"
        if not torch.backends.cudnn.benchmark:
            return "heuristic"
        return BENCHMARK_ALL if torch.backends.cudnn.benchmark_limit == ALL else "benchmark"

    def of_precision(self) -> dict[str, Any]:
        weights = {parameter.dtype for parameter in self.network.parameters() if parameter.is_floating_point()}
        asked, seen = self.settings.autocast or self.settings.weights, self._dtypes()
        if self.opaque and asked in seen:  # it may exclude some of its layers from automatic casting
            seen = {asked}
        is_set = not seen and self._casts_as_set() and weights <= {self.settings.weights}
        found = precision_seen(_names(weights), _names(seen or ({asked} if is_set else weights)))
        told = as_set if is_set else as_observed
        if found != "fp32":
            return told(found)
        if self._on_cpu:
            narrowed = narrowed_products(self.seen.onednn_log)
            return told(f"fp32 with products allowed in {listed(narrowed)}" if narrowed else "fp32")
        convolution = torch.backends.cudnn.conv.fp32_precision == "tf32"  # pyright: ignore[reportAttributeAccessIssue]
        product = torch.backends.cuda.matmul.fp32_precision == "tf32"
        switches = {(True, True): "tf32", (True, False): "tf32-conv", (False, False): "fp32"}
        return told(switches.get((convolution, product), "tf32 in products alone"))

    def _dtypes(self) -> set[torch.dtype]:
        """Return the number types of activations or, in compiled code, of oneDNN's inputs."""
        return self.seen.dtypes or onednn_dtypes(self.seen.onednn_log)

    def _casts_as_set(self) -> bool:
        """Whether torch casts inside the context in which the step runs."""
        kind, autocast = self.settings.device.type, self.settings.autocast
        with self.settings.casting():
            if not torch.is_autocast_enabled(kind):
                return autocast is None
            return autocast == torch.get_autocast_dtype(kind)

    def _layout(self) -> dict[str, Any]:
        asked, seen = "nhwc" if self.settings.channels_last else "nchw", self.seen.layouts
        if seen:
            return as_observed(asked if self.opaque and asked in seen else listed(seen))
        # What compiled code does inside is its compiler's decision, but weights in another order speak against it.
        of_weights = {_layout_of(parameter) for parameter in self.network.parameters()} - {None, asked}
        return as_observed(listed(map(str, of_weights))) if of_weights else as_set(asked)

    def _engine(self) -> str:
        if not self._on_cpu:
            cudnn = torch.backends.cudnn
            return "cudnn" if cudnn.enabled and cudnn.is_available() else "native"
        return "onednn" if self.seen.primitives else "native"

    def _isa(self) -> dict[str, Any]:
        """Return the widest instruction set of all libraries: of oneDNN from its log, of torch's own kernels from
        torch."""
        if not self._on_cpu:
            return as_set("not used")
        own = _ISA_OF_CAPABILITY.get(torch.backends.cpu.get_cpu_capability())
        known = [isa for isa in (widest_isa(self.seen.primitives), own) if isa is not None]
        return as_observed(max(known, key=ISA_ORDER.index)) if known else as_set(self.request["isa"])


def _names(dtypes: Iterable[torch.dtype]) -> set[str]:
    return precisions(str(dtype).removeprefix("torch.") for dtype in dtypes)


def mode_in_use(code: CodeType, asked: str) -> dict[str, Any]:
    """Return the effective value of the axis `compile` for a network whose forward function is `code`.

    Dynamo stores for each piece of Python code its compiled programs and their compiler. It has no entry if
    torch.compile did nothing: disabled by TORCH_COMPILE_DISABLE, or stopped by an error that it was to suppress.
    """
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list  # pyright: ignore[reportPrivateUsage]

    entries = _debug_get_cache_entry_list(code)
    if not entries:
        return as_observed("off")
    compiler: Any = getattr(entries[0], "backend", None)
    if compiler is None:  # this torch does not report the compiler
        return as_set(asked)
    if getattr(compiler, "compiler_name", None) != "inductor":
        return as_observed(f"another compiler than Inductor ({type(compiler).__name__})")
    options = dict(compiler.config)
    fitting = (mode for mode in _MODES if inductor_options(mode) == options)
    return as_observed(next(fitting, "other options of Inductor"))
