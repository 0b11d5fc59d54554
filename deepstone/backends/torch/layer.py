"""One layer by itself, lowered as in the network: what `verify` holds against the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from deepstone.backends.base import LayerResult
from deepstone.backends.scopes import scope_name
from deepstone.backends.torch.lower import Lowering
from deepstone.backends.torch.settings import Settings
from deepstone.backends.torch.values import load, to_numpy
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import SoftmaxCrossEntropy


class LayerRunner:
    """Runs single layers of one job. They are never compiled: a compiler sees more than one layer at a time."""

    def __init__(self, graph: Graph, settings: Settings, labels: Any) -> None:
        self._graph = graph
        self._settings = settings
        self._labels = torch.from_numpy(labels).to(settings.device)

    def run(
        self, layer: Layer, weights: Mapping[str, Any], inputs: Mapping[str, Any], upstream: Any | None
    ) -> LayerResult:
        module = single_layer(self._graph, layer, weights, self._settings)
        given = {name: self._placed(array) for name, array in inputs.items()}
        arguments: list[Tensor] = list(given.values())
        if isinstance(layer.op, SoftmaxCrossEntropy):
            arguments.append(self._labels)
        with torch.set_grad_enabled(upstream is not None), self._settings.casting():
            output: Tensor = module(*arguments)
        if upstream is not None and output.requires_grad:
            output.backward(self._like(upstream, output))
        own = getattr(module, scope_name(layer.name), None)
        return LayerResult(
            to_numpy(output),
            inputs={name: to_numpy(tensor.grad) for name, tensor in given.items() if tensor.grad is not None},
            parameters={name: to_numpy(p.grad) for name, p in module_parameters(own) if p.grad is not None},
            buffers={name: to_numpy(own.get_buffer(name)) for name in self._graph.buffers(layer)} if own else {},
        )

    def _placed(self, array: Any) -> Tensor:
        image = array.ndim == 4 and self._settings.channels_last
        memory_format = torch.channels_last if image else torch.contiguous_format
        tensor = torch.from_numpy(array)
        placed = tensor.to(self._settings.device, self._settings.weights, memory_format=memory_format, copy=True)
        return placed.requires_grad_(self._settings.phase != "forward")

    def _like(self, upstream: Any, output: Tensor) -> Tensor:
        tensor = torch.from_numpy(upstream)
        memory_format = torch.channels_last if output.dim() == 4 and self._settings.channels_last else None
        placed = tensor.to(output.device, output.dtype)
        return placed if memory_format is None else placed.contiguous(memory_format=memory_format)


def single_layer(graph: Graph, layer: Layer, weights: Mapping[str, Any], settings: Settings) -> nn.Module:
    """The layer as a network of its own, which takes each of its inputs once, and the labels if it is a loss."""
    module = Lowering(graph, [layer], dropout=settings.dropout).module(*dict.fromkeys(layer.inputs))
    load(module, {layer.name: weights})
    settings.place(module)
    return module


def module_parameters(module: Any | None) -> list[tuple[str, Tensor]]:
    return [] if module is None else list(module.named_parameters())
