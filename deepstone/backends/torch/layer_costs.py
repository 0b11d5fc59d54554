"""How long each layer takes in a training step, by running it in isolation: what a pipeline is cut by.

Layers that are the same operation on the same shapes are run once, so a network of a thousand layers takes as long as
one of twenty. The times decide where to cut and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

from deepstone.backends.torch.isolated import single_layer
from deepstone.backends.torch.settings import Settings
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Dropout, Flatten, Input, SoftmaxCrossEntropy

_RUNS: Final = 3  # of which the shortest counts, after one that does not
METHOD: Final = "measured: forward and backward of each layer in isolation, on one microbatch"


def measured_costs(
    graph: Graph, weights: Mapping[str, Mapping[str, Any]], settings: Settings, batch: int
) -> list[float]:
    """The seconds of each layer on `batch` samples."""
    known: dict[object, float] = {}
    found: list[float] = []
    for layer in graph.layers:
        needs_gradient = layer.name in graph.after_parameters
        key = (layer.op, tuple(map(tuple, graph.input_shapes(layer))), needs_gradient)
        if key not in known:
            idle = isinstance(layer.op, Input | Flatten) or (isinstance(layer.op, Dropout) and not settings.dropout)
            known[key] = 0.0 if idle else _time(graph, layer, weights.get(layer.name, {}), settings, batch)
        found.append(known[key])
    return found


def _time(graph: Graph, layer: Layer, weights: Mapping[str, Any], settings: Settings, batch: int) -> float:
    module = single_layer(graph, layer, weights, settings)
    inputs = [
        torch.randn(batch, *graph.shapes[name]).to(settings.device, settings.weights)
        for name in dict.fromkeys(layer.inputs)
    ]
    if layer.name in graph.after_parameters:
        for tensor in inputs:
            tensor.requires_grad_()
    if isinstance(layer.op, SoftmaxCrossEntropy):
        inputs.append(torch.zeros(batch, dtype=torch.int64, device=settings.device))
    times = [_run(module, inputs, settings) for _ in range(1 + _RUNS)]
    return min(times[1:])


def _run(module: torch.nn.Module, inputs: list[Tensor], settings: Settings) -> float:
    _synchronize(settings)
    begin_s = time.perf_counter()
    with settings.casting():
        output: Tensor = module(*inputs)
    if output.requires_grad:
        output.sum().backward()
    _synchronize(settings)
    return time.perf_counter() - begin_s


def _synchronize(settings: Settings) -> None:
    if settings.device.type == "cuda":
        torch.cuda.synchronize()
