"""One layer by itself, lowered as in the network: what `verify` holds against the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


class LayerRunner:
    """Runs single layers of one job. Layers that do the same on the same shapes share one compiled function."""

    def __init__(self, graph: Graph, settings: Settings, labels: Any) -> None:
        self._settings = settings
        self._labels = place(labels, np.int32, settings)
        self._lowering = Lowering(settings=settings, training=settings.training)
        self._buffers = initial_buffers(graph)
        self._key = jax.random.key(settings.seed) if settings.dropout else None
        self._functions: dict[tuple[Op, tuple[int, ...]], Callable[..., Any]] = {}

    def run(
        self, layer: Layer, weights: Mapping[str, Any], inputs: Mapping[str, Any], upstream: Any | None
    ) -> LayerResult:
        settings, op = self._settings, layer.op
        sources = list(dict.fromkeys(layer.inputs))
        taken = tuple(sources.index(name) for name in layer.inputs)
        held = {name: to_device(op, name, array, settings) for name, array in weights.items()}
        buffers = self._buffers.get(layer.name, {})
        kept = {name: to_device(op, name, array, settings) for name, array in buffers.items()}
        given = [self._placed(inputs[name]) for name in sources]
        above = None if upstream is None else self._placed(upstream)
        function = self._function(op, taken)
        output, after, (input_gradients, gradients) = function(given, held, kept, self._labels, self._key, above)
        return LayerResult(
            self._back(output),
            inputs={name: self._back(array) for name, array in zip(sources, input_gradients, strict=False)},
            parameters={name: from_device(op, name, array, settings) for name, array in gradients.items()},
            buffers={name: to_numpy(array) for name, array in after.items()},
        )

    def _function(self, op: Op, taken: tuple[int, ...]) -> Callable[..., Any]:
        """Compiled once for every operation and way of taking its inputs; JAX tells shapes apart."""
        if (op, taken) not in self._functions:
            self._functions[op, taken] = jax.jit(self._traced(op, taken))
        return self._functions[op, taken]

    def _traced(self, op: Op, taken: tuple[int, ...]) -> Callable[..., Any]:
        def run(given: Any, held: Any, kept: Any, labels: Any, key: Any, upstream: Any) -> Any:
            def forward(given: Any, held: Any) -> Any:
                inputs = [given[position] for position in taken]
                layer = Given(inputs=inputs, held=held, kept=kept, labels=labels, key=key)
                return self._lowering.apply(op, layer)

            if upstream is None:
                return *forward(given, held), ([], {})
            output, backward, after = jax.vjp(forward, given, held, has_aux=True)
            return output, after, backward(jnp.asarray(upstream, output.dtype))

        return run

    def _placed(self, array: Any) -> Any:
        return place(self._settings.order.images(array), self._settings.activations, self._settings)

    def _back(self, array: Any) -> Any:
        return np.array(self._settings.order.images_back(to_numpy(array)), order="C")
