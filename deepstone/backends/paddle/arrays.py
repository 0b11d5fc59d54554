"""The parameters and buffers of some layers as Paddle has them, and NumPy arrays of them as the graph has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import paddle

from deepstone.backends.paddle.settings import Settings
from deepstone.backends.wire_graph import WireLayer

_STARTS = {"running_mean": paddle.zeros, "running_var": paddle.ones}


class Arrays:
    """Parameters and buffers by layer, then by name."""

    def __init__(
        self,
        layers: Iterable[WireLayer],
        weights: Mapping[str, Mapping[str, Any]],
        settings: Settings,
        *,
        trained: bool,
    ) -> None:
        self._settings = settings
        self._layers = {layer.name: layer for layer in layers}
        self.parameters: dict[str, dict[str, Any]] = {}
        self.buffers: dict[str, dict[str, Any]] = {}
        for name, layer in self._layers.items():
            if layer.parameters:
                own = {key: _transposed(layer, key, array) for key, array in weights[name].items()}
                self.parameters[name] = {key: _parameter(own[key], settings.dtype, trained) for key in layer.parameters}
            if layer.buffers:
                shape = layer.parameters["weight"]
                self.buffers[name] = {key: _STARTS[key](shape, dtype=settings.dtype) for key in layer.buffers}

    def flat(self) -> list[Any]:
        return [tensor for arrays in self.parameters.values() for tensor in arrays.values()]

    def arrays(self, kind: str, steps: int) -> dict[tuple[str, str], Any]:
        """`parameters`, `gradients` or `buffers` after so many steps, as the graph has them."""
        found: dict[tuple[str, str], Any] = {}
        for name, tensors in (self.buffers if kind == "buffers" else self.parameters).items():
            for key, tensor in tensors.items():
                taken = tensor.grad if kind == "gradients" else tensor
                if taken is not None:
                    found[name, key] = _transposed(self._layers[name], key, taken.numpy())
                if key == "running_var" and steps:
                    found[name, key] = self._unbiased(self._layers[name], found[name, key], steps)
        return found

    def _unbiased(self, layer: WireLayer, variance: Any, steps: int) -> Any:
        """Paddle keeps the biased variance. Since both averages are linear in the variances and began at 1, the one
        follows from the other and the number of steps."""
        values = self._settings.batch * layer.output[1] * layer.output[2]
        share = values / (values - 1)
        return (share * variance + (1 - share) * (1 - layer.has["momentum"]) ** steps).astype(variance.dtype)


def _parameter(array: Any, dtype: str, trained: bool) -> Any:
    zero = paddle.nn.initializer.Constant(0.0)
    parameter = paddle.create_parameter(list(array.shape), dtype, default_initializer=zero)
    parameter.set_value(np.ascontiguousarray(array, dtype))
    parameter.stop_gradient = not trained
    return parameter


def _transposed(layer: WireLayer, name: str, array: Any) -> Any:
    """Between the graph's order and Paddle's, whose dense layers have their inputs first."""
    return np.ascontiguousarray(array.T) if layer.op == "dense" and name == "weight" else array
