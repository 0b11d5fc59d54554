"""One layer by itself, again and again: its forward, its backward, and for layers with weights each gradient alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from deepstone.backends.base import Job
from deepstone.backends.torch.layer import single_layer
from deepstone.backends.torch.settings import Settings
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Conv, Dense, Dropout, Flatten, Input, SoftmaxCrossEntropy


def lone_programs(
    graph: Graph, layer: Layer, weights: Mapping[str, Any], settings: Settings, job: Job
) -> dict[str, Callable[[], None]]:
    """On arrays drawn from N(0, 1). Backward runs from what one forward kept, as it does in a step."""
    if isinstance(layer.op, Input | Flatten) or (isinstance(layer.op, Dropout) and not settings.dropout):
        return {}  # there is nothing to do but to hand on an array
    module = single_layer(graph, layer, weights, settings)
    arguments = [_drawn(graph, name, settings, len(job.labels)) for name in dict.fromkeys(layer.inputs)]
    inputs = [tensor for tensor in arguments if tensor.requires_grad]
    if isinstance(layer.op, SoftmaxCrossEntropy):
        arguments.append(torch.from_numpy(job.labels).to(settings.device))
    if settings.phase == "forward":

        def evaluate() -> None:
            with torch.inference_mode(), settings.casting():
                module(*arguments)

        return {"forward": evaluate}

    def forward() -> None:
        with settings.casting():
            module(*arguments)

    with settings.casting():
        output: Tensor = module(*arguments)
    programs = {"forward": forward}
    parameters = list(module.parameters())
    if output.requires_grad and inputs + parameters:
        programs["backward"] = _gradients(output, inputs + parameters)
        if isinstance(layer.op, Conv | Dense):
            programs["weight"] = _gradients(output, parameters)
            if inputs:
                programs["data"] = _gradients(output, inputs)
    return programs


def _gradients(output: Tensor, wanted: Sequence[Tensor]) -> Callable[[], None]:
    upstream = torch.randn_like(output)

    def backward() -> None:
        torch.autograd.grad(output, wanted, upstream, retain_graph=True)

    return backward


def _drawn(graph: Graph, source: str, settings: Settings, batch: int) -> Tensor:
    """What the layer `source` would hand on: its shape, number type and memory order."""
    shape = (batch, *graph.shapes[source])
    is_image = source == graph.input.name
    dtype = settings.weights if is_image or settings.autocast is None else settings.autocast
    tensor = torch.randn(shape, device=settings.device).to(dtype)
    if len(shape) == 4 and settings.channels_last:
        tensor = tensor.contiguous(memory_format=torch.channels_last)
    needs_gradient = settings.phase != "forward" and (settings.input_grad or _trained(graph, source))
    return tensor.requires_grad_(needs_gradient)


def _trained(graph: Graph, source: str) -> bool:
    """Whether the output of this layer depends on weights, so that its gradient is needed."""
    return source in graph.after_parameters or bool(graph.parameters(graph.layer(source)))
