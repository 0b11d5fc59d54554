"""Converts the request's axes to JAX settings: `auto` means JAX's own choice."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.lax import Precision

from deepstone.backends.base import Missing, Unsupported
from deepstone.backends.layouts import channels_first, channels_last, kernel_first, kernel_last
from deepstone.backends.missing import no_gpu
from deepstone.backends.settings import StepSettings, refuse_broken_rules, step_settings
from deepstone.setups.axes import AUTO, JAX

T = TypeVar("T")

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """The axis `layout`: the memory order of channels, rows and columns in a batch of images."""

    name: str
    channel_axis: int
    kernel_output_axis: int
    kernel_input_axis: int
    kernel_image_axes: tuple[int, int]
    image_axes: tuple[int, int]  # rows, columns
    dimension_numbers: tuple[str, str, str]  # of a convolution: images, kernels, outputs

    @property
    def is_last(self) -> bool:
        """Whether channels come last; the graph has them first."""
        return self.channel_axis == 3

    def images(self, array: Any) -> Any:
        """From the graph's order."""
        return channels_last(array) if self.is_last else array

    def images_back(self, array: Any) -> Any:
        return channels_first(array) if self.is_last else array

    def kernels(self, array: Any) -> Any:
        """From the graph's order."""
        return kernel_last(array) if self.is_last else array

    def kernels_back(self, array: Any) -> Any:
        return kernel_first(array) if self.is_last else array

    @property
    def all_but_channels(self) -> tuple[int, int, int]:
        return (0, *self.image_axes)

    def sides(self, rows: T, columns: T, other: T) -> tuple[T, T, T, T]:
        """Return one value for each dimension of a batch of images."""
        return _by_axis(self.image_axes, rows, columns, other)

    def kernel_sides(self, rows: T, columns: T, other: T) -> tuple[T, T, T, T]:
        """Return one value for each dimension of the kernels of a convolution."""
        return _by_axis(self.kernel_image_axes, rows, columns, other)

    def along_channels(self, vector: Any) -> Any:
        """Reshape one value per channel to broadcast over an image."""
        return vector if self.is_last else vector[:, None, None]


def _by_axis(axes: tuple[int, int], rows: T, columns: T, other: T) -> tuple[T, T, T, T]:
    values = [other] * 4
    values[axes[0]], values[axes[1]] = rows, columns
    return values[0], values[1], values[2], values[3]


def _order_of(images: str, kernels: str) -> Order:
    """Return the order from JAX's names of axes; `O` is the output of a kernel."""
    return Order(
        name=images.lower(),
        channel_axis=images.index("C"),
        kernel_output_axis=kernels.index("O"),
        kernel_input_axis=kernels.index("I"),
        kernel_image_axes=(kernels.index("H"), kernels.index("W")),
        image_axes=(images.index("H"), images.index("W")),
        dimension_numbers=(images, kernels, images),
    )


NCHW = _order_of("NCHW", "OIHW")
NHWC = _order_of("NHWC", "HWIO")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings(StepSettings):
    """The settings for the rest of the backend; process-wide switches are already set."""

    device: Any  # a jax.Device
    order: Order
    precision: str
    weights: Any  # types of numbers
    activations: Any
    wide: Any
    convolution_precision: Precision | None  # None: XLA's default
    product_precision: Precision | None
    compiler_options: Mapping[str, Any]

    @property
    def on_cpu(self) -> bool:
        return self.device.platform == "cpu"


def apply(request: Mapping[str, Any]) -> Settings:
    """Resolve the device, refuse unsupported settings, set the process-wide switches."""
    device = _device(str(request["device"]))
    on_cpu = device.platform == "cpu"
    refuse_broken_rules(request, JAX, "cpu" if on_cpu else f"gpu:{device.id}")
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
        **step_settings(request),
        compiler_options=_compiler_options(request, on_cpu),
    )


def _device(name: str) -> Any:
    if name == AUTO:
        return jax.local_devices()[0]
    if name == "cpu":
        return jax.local_devices(backend="cpu")[0]
    try:
        devices = jax.local_devices(backend="gpu")
    except RuntimeError as error:
        raise Missing(no_gpu(name, JAX, has_build=True)) from error
    index = int(name.partition(":")[2])
    if index >= len(devices):
        raise Missing(f"device {name}: JAX sees {len(devices)} GPU(s); use gpu:0 to the last of them")
    return devices[index]


def _order(layout: str) -> Order:
    """Return the order. `auto` is NHWC, the only order of Flax, the layer library of JAX's authors.

    `lax.conv` defaults to NCHW, but people seldom call it directly, and XLA turns every convolution to NHWC on the CPU
    (and on a GPU if its matrix units need that). NCHW would mean a transposition around each of them.
    """
    return NCHW if layout == "nchw" else NHWC


def _precision(asked: str, device: Any) -> str:
    """Return the value of `auto`: JAX lets XLA use TF32 for fp32 products on a GPU that has it."""
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
