"""One isolated layer, lowered as in the network: run once on given arrays, or timed repeatedly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from deepstone.backends.base import Job, LayerResult
from deepstone.backends.isolated import Isolation
from deepstone.backends.owners import scope_name
from deepstone.backends.torch.arrays import load, to_numpy
from deepstone.backends.torch.lower import Lowering
from deepstone.backends.torch.settings import Settings
from deepstone.backends.wire_graph import WireGraph
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
            parameters={name: to_numpy(p.grad) for name, p in _module_parameters(own) if p.grad is not None},
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
    """Return the layer as a network that takes each of its inputs once, and the labels if it is a loss."""
    module = Lowering(graph, [layer], **settings.lowering).module(*dict.fromkeys(layer.inputs))
    load(module, {layer.name: weights})
    settings.place(module)
    return module


def _module_parameters(module: Any | None) -> list[tuple[str, Tensor]]:
    return [] if module is None else list(module.named_parameters())


def isolated_programs(job: Job, graph: Graph, layer: Layer, settings: Settings) -> dict[str, Callable[[], None]]:
    """Return programs on arrays drawn from N(0, 1). Backward runs from the results of one forward, as in a step."""
    isolation = Isolation(WireGraph(job.graph), layer.name, job.request, len(job.labels))

    @cache
    def ready() -> tuple[nn.Module, dict[str, Tensor], list[Tensor]]:
        """Return the module, its inputs and all its arguments, which all programs share."""
        module = single_layer(graph, layer, job.weights.get(layer.name, {}), settings)
        inputs = {name: _drawn(graph, name, settings, len(job.labels)) for name in isolation.layer.sources}
        for name in isolation.sources if isolation.training else ():
            inputs[name].requires_grad_()
        arguments = list(inputs.values())
        if isinstance(layer.op, SoftmaxCrossEntropy):
            arguments.append(torch.from_numpy(job.labels).to(settings.device))
        return module, inputs, arguments

    @cache
    def result() -> Tensor:
        module, _, arguments = ready()
        with settings.casting():
            return module(*arguments)

    def forward() -> Callable[[], None]:
        module, _, arguments = ready()

        def evaluate() -> None:
            with torch.inference_mode(), settings.casting():
                module(*arguments)

        def run() -> None:
            with settings.casting():
                module(*arguments)

        return run if isolation.training else evaluate

    def backward(sources: Sequence[str], trained: bool) -> Callable[[], None]:
        module, inputs, _ = ready()
        wanted = [*(inputs[name] for name in sources), *(module.parameters() if trained else ())]
        output = result()
        upstream = torch.randn_like(output)

        def run() -> None:
            torch.autograd.grad(output, wanted, upstream, retain_graph=True)

        return run

    return isolation.programs(forward, backward)


def _drawn(graph: Graph, source: str, settings: Settings, batch: int) -> Tensor:
    """Draw an array like the output of the layer `source`: the same shape, number type and memory order."""
    shape = (batch, *graph.shapes[source])
    is_image = source == graph.input.name
    dtype = settings.weights if is_image or settings.autocast is None else settings.autocast
    tensor = torch.randn(shape, device=settings.device).to(dtype)
    if len(shape) == 4 and settings.channels_last:
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor
