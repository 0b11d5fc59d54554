"""The memory of a user's module, by submodule: parameters, their gradients and their optimizer state."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from deepstone.backends.torch.own_module import OwnModule

NOTHING = {"parameters_bytes": 0, "gradients_bytes": 0, "optimizer_bytes": 0}


@contextmanager
def counting_gradients(network: nn.Module) -> Generator[dict[Tensor, int], None, None]:
    """Record the bytes of each gradient that a step inside stores."""
    found: dict[Tensor, int] = {}

    def stored(parameter: Tensor) -> None:
        assert parameter.grad is not None
        found[parameter] = size(parameter.grad)

    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    handles = [parameter.register_post_accumulate_grad_hook(stored) for parameter in trained]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def held(
    own: OwnModule, gradients: dict[Tensor, int], optimizer_bytes: Callable[[Tensor], int]
) -> dict[str, dict[str, Any]]:
    """Return bytes by the path of each submodule with its own parameters. Shared parameters count for the first."""
    found: dict[str, dict[str, Any]] = {}
    for name, parameter in own.inner.named_parameters():  # tells each of them once
        path = name.rpartition(".")[0]
        sizes = found.setdefault(path, {"op": type(own.inner.get_submodule(path)).__name__, **NOTHING})
        sizes["parameters_bytes"] += size(parameter)
        sizes["gradients_bytes"] += gradients.get(parameter, 0)
        sizes["optimizer_bytes"] += optimizer_bytes(parameter)
    return found


def size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
