"""Converts arrays between NumPy, in the graph's order and types, and a device, in the job's order and types."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from deepstone.backends.jax.settings import Settings
from deepstone.graph import ops
from deepstone.graph.graph import Graph
from deepstone.graph.ops import Op

Key = tuple[str, str]  # layer, array


def parameter_keys(graph: Graph) -> list[Key]:
    return [(layer.name, name) for layer in graph.layers for name in graph.parameters(layer)]


def buffer_keys(graph: Graph) -> list[Key]:
    return [(layer.name, name) for layer in graph.layers for name in graph.buffers(layer)]


def to_device(op: Op, name: str, array: Any, settings: Settings) -> Any:
    """Convert a parameter or running statistic for the device."""
    match op, name:
        case ops.Conv(), "weight":
            ordered = settings.order.kernels(array)
        case ops.Dense(), "weight":
            ordered = array.T  # inputs first, as JAX multiplies them
        case _:
            ordered = array
    return place(ordered, settings.weights, settings)


def from_device(op: Op, name: str, array: Any, settings: Settings) -> Any:
    """Convert a parameter, its gradient or a running statistic back to the graph's order."""
    values = to_numpy(array)
    match op, name:
        case ops.Conv(), "weight":
            return np.ascontiguousarray(settings.order.kernels_back(values))
        case ops.Dense(), "weight":
            return np.ascontiguousarray(values.T)
        case _:
            return values


def place(array: Any, dtype: Any, settings: Settings) -> Any:
    """Return a copy on the device, never the caller's memory, which may be a file."""
    return jax.device_put(np.array(array, dtype=dtype, order="C"), settings.device, may_alias=False)


def to_numpy(array: Any) -> Any:
    """Return a copy that outlives the device's. Narrow formats are widened to float32: NumPy lacks some of them."""
    values = np.asarray(array)
    return np.array(values, dtype=np.float64 if values.dtype == np.float64 else np.float32)
