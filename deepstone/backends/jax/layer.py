"""One layer by itself, lowered as in the network: what `verify` holds against the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deepstone.backends.base import LayerResult
from deepstone.backends.jax.lower import Given, Lowering
from deepstone.backends.jax.settings import Settings
from deepstone.backends.jax.values import from_device, place, to_device, to_numpy
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Op
from deepstone.graph.weights import initial_buffers


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrays:
    """What one layer works on, on the device."""

    given: list[Any]  # one for each layer it reads
    held: dict[str, Any]
    kept: dict[str, Any]


class LayerRunner:
    """Runs single layers of one job. Layers that do the same on the same shapes share one compiled function."""

    def __init__(self, graph: Graph, settings: Settings, labels: Any) -> None:
        self._settings = settings
        self.labels = place(labels, np.int32, settings)
        self._lowering = Lowering(settings=settings, training=settings.training)
        self._buffers = initial_buffers(graph)
        self.key = jax.random.key(settings.seed) if settings.dropout else None
        self._functions: dict[tuple[Op, tuple[int, ...]], Callable[..., Any]] = {}

    def run(
        self, layer: Layer, weights: Mapping[str, Any], inputs: Mapping[str, Any], upstream: Any | None
    ) -> LayerResult:
        arrays = self.arrays(layer, weights, inputs)
        above = None if upstream is None else self.placed(upstream)
        output, after, (input_gradients, gradients) = self._compiled(layer)(
            arrays.given, arrays.held, arrays.kept, self.labels, self.key, above
        )
        return LayerResult(
            self._back(output),
            inputs={name: self._back(array) for name, array in zip(inputs_of(layer), input_gradients, strict=False)},
            parameters={name: from_device(layer.op, name, array, self._settings) for name, array in gradients.items()},
            buffers={name: to_numpy(array) for name, array in after.items()},
        )

    def arrays(self, layer: Layer, weights: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
        settings, op = self._settings, layer.op
        buffers = self._buffers.get(layer.name, {})
        return Arrays(
            given=[self.placed(inputs[name]) for name in inputs_of(layer)],
            held={name: to_device(op, name, array, settings) for name, array in weights.items()},
            kept={name: to_device(op, name, array, settings) for name, array in buffers.items()},
        )

    def placed(self, array: Any) -> Any:
        """What a layer gives, or its gradient, from the graph's order."""
        return place(self._settings.order.images(array), self._settings.activations, self._settings)

    def function(self, layer: Layer) -> Callable[..., Any]:
        """The layer as a pure function: inputs, parameters, statistics, labels, key to output and statistics."""
        return self._forward(layer.op, _taken(layer))

    def _forward(self, op: Op, taken: tuple[int, ...]) -> Callable[..., Any]:
        def forward(given: Any, held: Any, kept: Any, labels: Any, key: Any) -> Any:
            inputs = [given[position] for position in taken]
            return self._lowering.apply(op, Given(inputs=inputs, held=held, kept=kept, labels=labels, key=key))

        return forward

    def _compiled(self, layer: Layer) -> Callable[..., Any]:
        """Compiled once for every operation and way of taking its inputs; JAX tells shapes apart."""
        alike = layer.op, _taken(layer)
        if alike not in self._functions:
            self._functions[alike] = jax.jit(_with_gradients(self._forward(*alike)))
        return self._functions[alike]

    def _back(self, array: Any) -> Any:
        return np.array(self._settings.order.images_back(to_numpy(array)), order="C")


def inputs_of(layer: Layer) -> list[str]:
    """The layers it reads, each once."""
    return list(dict.fromkeys(layer.inputs))


def _taken(layer: Layer) -> tuple[int, ...]:
    sources = inputs_of(layer)
    return tuple(sources.index(name) for name in layer.inputs)


def _with_gradients(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(given: Any, held: Any, kept: Any, labels: Any, key: Any, upstream: Any) -> Any:
        if upstream is None:
            return *forward(given, held, kept, labels, key), ([], {})
        output, backward, after = jax.vjp(
            lambda given, held: forward(given, held, kept, labels, key), given, held, has_aux=True
        )
        return output, after, backward(jnp.asarray(upstream, output.dtype))

    return run
