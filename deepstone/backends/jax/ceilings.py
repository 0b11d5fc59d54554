"""Programs that use one resource of a device up to its ceiling: a matrix product, or a pass over memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import Precision

from deepstone.backends.base import IsolatedLayer, Unsupported
from deepstone.backends.jax.isolated import Turns
from deepstone.backends.jax.settings import Settings

_TYPES = {
    "fp32": jnp.float32,
    "tf32": jnp.float32,
    "bf16": jnp.bfloat16,
    "fp16": jnp.float16,
    "fp64": jnp.float64,
}


def ceiling(wanted: Mapping[str, Any], settings: Settings) -> IsolatedLayer:
    turns = Turns(settings)
    if wanted["kind"] == "product":
        precision, size = str(wanted["precision"]), int(wanted["size"])
        if precision == "fp64":
            jax.config.update("jax_enable_x64", True)
        # On a GPU, XLA may use TF32 for products of fp32 numbers at any precision below the highest.
        exact = Precision.HIGH if precision == "tf32" else Precision.HIGHEST
        a, b = (_sampled(seed, (size, size), _TYPES[precision], settings) for seed in (0, 1))
        return IsolatedLayer({"product": turns.program(lambda a, b: jnp.matmul(a, b, precision=exact), a, b)}, turns)
    if wanted["kind"] == "copy":  # XLA removes a plain copy, so each value changes its sign
        values = _sampled(0, (int(wanted["bytes"]) // 4,), jnp.float32, settings)
        return IsolatedLayer({"copy": turns.program(jnp.negative, values)}, turns)
    raise Unsupported(f"JAX backend: no ceiling of the kind {wanted['kind']!r}")


def _sampled(seed: int, shape: tuple[int, ...], kind: Any, settings: Settings) -> Any:
    with jax.default_device(settings.device):
        return jax.random.normal(jax.random.key(seed), shape, jnp.float32).astype(kind)
