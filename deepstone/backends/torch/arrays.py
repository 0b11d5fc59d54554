"""Converts arrays between NumPy and a lowered network's modules."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from deepstone.backends.owners import scope_name
from deepstone.backends.torch.own_module import OwnModule
from deepstone.graph.graph import Graph, Layer


def modules_by_name(network: nn.Module) -> dict[str, nn.Module]:
    """Return every module by the last part of its path, which `scope_name` returns.

    The outermost module with a name counts: inside a user's own module any name may occur.
    """
    found: dict[str, nn.Module] = {}
    for path, module in network.named_modules():
        found.setdefault(path.rpartition(".")[2], module)
    return found


def load(network: nn.Module, weights: Mapping[str, Mapping[str, Any]]) -> None:
    modules = modules_by_name(network)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # we only read it
        for layer, parameters in weights.items():
            for name, array in parameters.items():
                modules[scope_name(layer)].get_parameter(name).copy_(torch.from_numpy(array))


def perturb(network: nn.Module, share: float) -> None:
    """Change every parameter by this share of itself, up or down at random."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            signs = torch.randint(0, 2, parameter.shape, generator=generator) * 2 - 1
            parameter.mul_(1 + share * signs.to(parameter.device, parameter.dtype))


def to_numpy(tensor: Tensor) -> Any:
    """Convert to NumPy. Narrow formats are widened to float32: NumPy lacks some of them."""
    dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    return tensor.detach().to("cpu", dtype).contiguous().numpy()


def network_arrays(
    network: nn.Module, graph: Graph, kind: str, whole: Callable[[Tensor], Tensor] = lambda tensor: tensor
) -> dict[str, Any]:
    """Implements Backend.arrays. `whole` makes a tensor whole that is shared out."""
    found: dict[str, Any] = {}
    for name, array in named_tensors(network, graph, buffers=kind == "buffers"):
        tensor = array.grad if kind == "gradients" else array
        if tensor is not None:
            found[name] = to_numpy(whole(tensor))
    return found


def named_tensors(network: nn.Module, graph: Graph, *, buffers: bool) -> Iterator[tuple[str, Tensor]]:
    """The parameters or buffers of all layers that a network has, as `layer/array`."""
    modules = modules_by_name(network)
    for layer in graph.layers:
        module = modules.get(scope_name(layer.name))
        for name, tensor in [] if module is None else _of_layer(graph, layer, module, buffers=buffers):
            yield f"{layer.name}/{name}", tensor


def _of_layer(graph: Graph, layer: Layer, module: nn.Module, *, buffers: bool) -> list[tuple[str, Tensor]]:
    """Return the parameters or buffers of a layer by name; for a user's own module all, by their dotted names."""
    if isinstance(module, OwnModule):
        return list(module.inner.named_buffers() if buffers else module.inner.named_parameters())
    if buffers:
        return [(name, module.get_buffer(name)) for name in graph.buffers(layer)]
    return [(name, module.get_parameter(name)) for name in graph.parameters(layer)]
