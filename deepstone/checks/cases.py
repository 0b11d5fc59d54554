"""Inputs and expected outputs of each layer in the layer check, from a run of the reference through the network.

Every value is rounded to the precision under test, and the reference computes each layer from the rounded values. So a
layer is not blamed for rounding in earlier layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from deepstone.checks.agreement import norm
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Dropout, Input, MaxPool, SoftmaxCrossEntropy, Tanh
from deepstone.graph.reference import Array, Gradients, Output, forward, tied_windows
from deepstone.graph.weights import initial_buffers, initial_parameters, synthetic_batch

Key: TypeAlias = tuple[str, str]  # ("output", "") or ("input" | "parameter" | "buffer", name)
Rounding: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]


class Expected(Struct, frozen=True, kw_only=True):
    """An expected array. `scale` is the smallest norm that its error is divided by."""

    value: Array
    scale: float = 0.0


class Case(Struct, frozen=True, kw_only=True):
    layer: Layer
    position: int  # in the graph
    inputs: dict[str, NDArray[Any]]
    upstream: NDArray[Any] | None  # None: forward only
    expected: dict[Key, Expected]


class Trajectory:
    """A run of the reference through one network on one batch."""

    def __init__(self, graph: Graph, *, batch: int, seed: int, precision: str) -> None:
        self._graph = graph
        self._round = ROUNDING.get(precision, _to_float32)
        self._samples, self._labels = synthetic_batch(graph, batch, seed)
        self._parameters = initial_parameters(graph, seed, generic=True)
        self._buffers = initial_buffers(graph)
        self._outputs: dict[str, NDArray[Any]] = {}
        self._wide = precision == "fp64"
        self.gradients: dict[str, NDArray[Any]] = {}  # by `layer/parameter`, after all training cases

    def forward_cases(self) -> Iterator[Case]:
        """Yield every layer forward, in evaluation mode. Inputs come from training mode: with untrained running
        statistics, the values in a deep network grow without bound."""
        for position, layer in enumerate(self._graph.layers):
            self._outputs[layer.name] = self._round(self._run(layer, training=True).value)
            if _is_checked(layer):
                output = self._run(layer, training=False)
                expected = {("output", ""): Expected(value=output.value, scale=self._output_scale(layer))}
                yield Case(layer=layer, position=position, inputs=self._inputs(layer), upstream=None, expected=expected)

    def training_cases(self) -> Iterator[Case]:
        """Yield every layer forward and backward, from the last to the first. A layer runs twice to save memory."""
        for layer in self._graph.layers:
            self._outputs[layer.name] = self._round(self._run(layer, training=True).value)
        upstream: dict[str, Array] = {layer.name: np.ones(()) for layer in self._graph.losses}
        for position, layer in reversed(list(enumerate(self._graph.layers))):
            if isinstance(layer.op, Input):
                continue
            output = self._run(layer, training=True)
            given = self._round(upstream.pop(layer.name))
            gradients = output.backward(given)
            for name, gradient in gradients.parameters.items():
                self.gradients[f"{layer.name}/{name}"] = gradient if self._wide else _to_float32(gradient)
            for name, gradient in zip(layer.inputs, gradients.inputs, strict=True):
                upstream[name] = upstream[name] + gradient if name in upstream else gradient
            if _is_checked(layer):
                yield self._case(position, layer, output, given, gradients)
            self._outputs.pop(layer.name)  # all its consumers are done

    def _case(self, position: int, layer: Layer, output: Output, upstream: NDArray[Any], gradients: Gradients) -> Case:
        if isinstance(layer.op, MaxPool):
            upstream = np.where(tied_windows(layer.op, self._outputs[layer.inputs[0]]), 0, upstream)
            gradients = output.backward(upstream)
        expected = {("output", ""): Expected(value=output.value, scale=self._output_scale(layer))}
        for name, gradient in zip(layer.inputs, gradients.inputs, strict=True):
            before = expected.get(("input", name))
            total = gradient if before is None else before.value + gradient
            expected["input", name] = Expected(value=total, scale=_input_scale(layer, len(total), upstream))
        for name, gradient in gradients.parameters.items():
            # One number per channel is a sum over all its pixels, which may nearly cancel: its rounding error is
            # relative to the summands, not to the sum.
            scale = norm(upstream) if gradient.ndim == 1 else 0.0
            expected["parameter", name] = Expected(value=gradient, scale=scale)
        for name, buffer in output.buffers.items():
            expected["buffer", name] = Expected(value=buffer)
        return Case(layer=layer, position=position, inputs=self._inputs(layer), upstream=upstream, expected=expected)

    def _output_scale(self, layer: Layer) -> float:
        """A loss is a difference of numbers as large as the scores, even if the loss is small."""
        if not isinstance(layer.op, SoftmaxCrossEntropy):
            return 0.0
        return abs(layer.op.weight) * float(np.abs(self._outputs[layer.inputs[0]]).max())

    def _run(self, layer: Layer, *, training: bool) -> Output:
        parameters: Mapping[str, NDArray[Any]] = self._parameters.get(layer.name, {})
        return forward(
            layer.op,
            [self._samples] if isinstance(layer.op, Input) else [self._outputs[name] for name in layer.inputs],
            {name: self._round(array) for name, array in parameters.items()},
            training=training,
            buffers=self._buffers.get(layer.name, {}),
            labels=self._labels,
        )

    def _inputs(self, layer: Layer) -> dict[str, NDArray[Any]]:
        return {name: self._outputs[name] for name in layer.inputs}


def _input_scale(layer: Layer, batch: int, upstream: NDArray[Any]) -> float:
    """The gradient of a loss is a probability minus 1 at the label, even if the network is very certain.

    The slope of tanh is 1 minus the square of its output: near 1, mostly rounding is left.
    """
    if isinstance(layer.op, Tanh):
        return norm(upstream)
    return abs(layer.op.weight) / math.sqrt(batch) if isinstance(layer.op, SoftmaxCrossEntropy) else 0.0


def _is_checked(layer: Layer) -> bool:
    """The input computes nothing, and dropout is the identity or random."""
    return not isinstance(layer.op, (Input, Dropout))


def _to_float64(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(array, dtype=np.float64)


def _to_float32(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(array, dtype=np.float32)


def _to_float16(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(array, dtype=np.float16).astype(np.float32)


def _to_bfloat16(array: NDArray[Any]) -> NDArray[Any]:
    """Round to the upper half of a float32, ties to even; NumPy has no bfloat16, so the type stays float32."""
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    even = ((bits >> 16) & 1) + np.uint32(0x7FFF)
    return ((bits + even) & np.uint32(0xFFFF0000)).view(np.float32).reshape(np.shape(array))


ROUNDING: dict[str, Rounding] = {
    "fp64": _to_float64,
    "bf16": _to_bfloat16,
    "bf16-mixed": _to_bfloat16,
    "fp16-mixed": _to_float16,
}
