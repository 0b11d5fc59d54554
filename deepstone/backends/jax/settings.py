"""The request's axes as JAX settings: what JAX itself would do where the request says `auto`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import Precision

from deepstone.backends.base import Missing, Unsupported
from deepstone.backends.jax.order import NCHW, NHWC, Order
from deepstone.setups.axes import AUTO
from deepstone.setups.rules import broken_rule

# The type of the weights, that of activations and products, and that of statistics and losses.
_TYPES: dict[str, tuple[Any, Any, Any]] = {
    "bf16-mixed": (jnp.float32, jnp.bfloat16, jnp.float32),
    "bf16": (jnp.bfloat16, jnp.bfloat16, jnp.float32),
    "fp64": (jnp.float64, jnp.float64, jnp.float64),
}
_FP32 = (jnp.float32, jnp.float32, jnp.float32)

# On a GPU XLA may use TF32 for products of fp32 numbers at any precision below the highest.
_PRODUCT_PRECISION = {"fp32": Precision.HIGHEST, "tf32": Precision.HIGH, "tf32-conv": Precision.HIGHEST}
_CONVOLUTION_PRECISION = {**_PRODUCT_PRECISION, "tf32-conv": Precision.HIGH}

_REFUSED: dict[str, dict[str, str]] = {
    "engine": {
        "onednn": "JAX has no choice of engine: XLA decides what, if anything, it gives to oneDNN; use engine=xla",
        "cudnn": "JAX has no choice of engine: XLA decides what it gives to cuDNN; use engine=xla",
        "native": "JAX has no kernels of its own: every operation is compiled by XLA; use engine=xla",
    },
    "compile": {
        "off": "JAX without jit compiles every operation by itself; it has no uncompiled way to run",
        "graph": "JAX has no graph that is recorded and left uncompiled",
        "reduce-overhead": "XLA has no such mode; jit is compile=default",
        "max-autotune": "XLA has no such mode; jit is compile=default",
    },
    "precision": {"fp16-mixed": "JAX has no loss scaling of its own, which training in fp16 needs; use bf16-mixed"},
    "optimizer": {"momentum-fused": "XLA fuses every update, so there is one way only; use optimizer=momentum"},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What the rest of the backend needs to know; process-wide switches are already set."""

    device: Any  # a jax.Device
    order: Order
    precision: str
    weights: Any  # types of numbers
    activations: Any
    wide: Any
    convolution_precision: Precision | None  # None: XLA's default
    product_precision: Precision | None
    phase: str
    optimizer: str
    dropout: bool
    input_grad: bool
    checkpointing: bool
    input: str
    seed: int
    compiler_options: Mapping[str, Any]

    @property
    def on_cpu(self) -> bool:
        return self.device.platform == "cpu"

    @property
    def training(self) -> bool:
        return self.phase != "forward"

    @property
    def device_name(self) -> str:
        return "cpu" if self.on_cpu else f"gpu:{self.device.id}"


def apply(request: Mapping[str, Any]) -> Settings:
    """Resolve the device, refuse what cannot be, set the process-wide switches."""
    device = _device(str(request["device"]))
    on_cpu = device.platform == "cpu"
    reason = broken_rule({**request, "device": "cpu" if on_cpu else f"gpu:{device.id}"}) or _refusal(request, on_cpu)
    if reason:
        raise Unsupported(reason)
    precision = _precision(str(request["precision"]), device)
    jax.config.update("jax_enable_x64", precision == "fp64")
    weights, activations, wide = _TYPES.get(precision, _FP32)
    return Settings(
        device=device,
        order=_order(str(request["layout"])),
        precision=precision,
        weights=weights,
        activations=activations,
        wide=wide,
        convolution_precision=None if on_cpu else _CONVOLUTION_PRECISION.get(str(request["precision"])),
        product_precision=None if on_cpu else _PRODUCT_PRECISION.get(str(request["precision"])),
        phase=str(request["phase"]),
        optimizer=str(request["optimizer"]),
        dropout=request["dropout"] == "on",
        input_grad=request["input_grad"] == "on",
        checkpointing=request["checkpointing"] == "on",
        input=str(request["input"]),
        seed=int(request["seed"]),
        compiler_options=_compiler_options(request, on_cpu),
    )


def _device(name: str) -> Any:
    if name == AUTO:
        return jax.devices()[0]
    if name == "cpu":
        return jax.devices("cpu")[0]
    try:
        devices = jax.devices("gpu")
    except RuntimeError as error:
        raise Missing(
            f"device {name}: JAX finds no usable GPU; install jax[cuda13] on a machine with one, or use device=cpu"
        ) from error
    index = int(name.partition(":")[2])
    if index >= len(devices):
        raise Missing(f"device {name}: JAX sees {len(devices)} GPU(s); use gpu:0 to the last of them")
    return devices[index]


def _refusal(request: Mapping[str, Any], on_cpu: bool) -> str | None:
    for axis, reasons in _REFUSED.items():
        if request[axis] in reasons:
            return reasons[str(request[axis])]
    if request["isa"] != AUTO:
        return (
            "XLA's limit of the instruction set binds the code that it generates, not the libraries that run its "
            "matrix products and convolutions, so it would be one in name only"
        )
    if request["inter_threads"] != AUTO:
        return "XLA runs independent operations on the threads that share the work of one; use threads"
    if request["threads"] != AUTO and not on_cpu:
        return "threads are those of XLA's CPU client, which a step on a GPU does not use"
    if request["algorithm"] == "deterministic" and on_cpu:
        return "XLA's switch to deterministic operations is one of its GPU compiler"
    return None


def _order(layout: str) -> Order:
    """`auto` is NHWC: the only order that Flax, the layer library of JAX's authors, has.

    `lax.conv` defaults to NCHW, but it is seldom called by hand, and XLA turns every convolution to NHWC on the CPU
    (and on a GPU where its matrix units want that), so that NCHW would mean transposing around each of them.
    """
    return NCHW if layout == "nchw" else NHWC


def _precision(asked: str, device: Any) -> str:
    """What `auto` is: JAX lets XLA use TF32 for products of fp32 numbers on a GPU that has it."""
    capability = re.fullmatch(r"(\d+)\.\d+", str(getattr(device, "compute_capability", "")))  # CUDA devices have one
    has_tf32 = capability is not None and int(capability[1]) >= 8
    if asked == AUTO:
        return "tf32" if has_tf32 else "fp32"
    if asked.startswith("tf32") and not has_tf32:
        raise Unsupported(f"{device.device_kind} has no TF32 (it came with compute capability 8.0)")
    return asked


def _compiler_options(request: Mapping[str, Any], on_cpu: bool) -> dict[str, Any]:
    if on_cpu:
        # Without it XLA takes the barriers out that keep what is computed again apart from what was computed before,
        # sees that they are the same, and keeps everything: checkpointing would change nothing.
        return {"xla_disable_hlo_passes": "cse_barrier_expander"} if request["checkpointing"] == "on" else {}
    # By default XLA times the algorithms that fit each operation on the GPU, and keeps the fastest.
    return {"heuristic": {"xla_gpu_autotune_level": 0}, "deterministic": {"xla_gpu_deterministic_ops": True}}.get(
        str(request["algorithm"]), {}
    )
