"""Arrays between NumPy and a lowered network's modules."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from deepstone.backends.scopes import scope_name


def owners(network: nn.Module) -> dict[str, nn.Module]:
    """Every module by the last part of its path, which is what `scope_name` gives.

    The outermost of a name: what a user's own module has inside may be called anything.
    """
    found: dict[str, nn.Module] = {}
    for path, module in network.named_modules():
        found.setdefault(path.rpartition(".")[2], module)
    return found


def load(network: nn.Module, weights: Mapping[str, Mapping[str, Any]]) -> None:
    modules = owners(network)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # we only read it
        for layer, parameters in weights.items():
            for name, array in parameters.items():
                modules[scope_name(layer)].get_parameter(name).copy_(torch.from_numpy(array))


def to_numpy(tensor: Tensor) -> Any:
    """Narrow formats are widened to float32: NumPy does not know them all."""
    dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    return tensor.detach().to("cpu", dtype).contiguous().numpy()
