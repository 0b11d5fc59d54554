"""The network as a module with the job's weights: lowered whole, or with checkpointing in segments.

A segment drops its activations and computes them again in backward.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from deepstone.backends.base import Unsupported
from deepstone.backends.settings import refuse_nothing_to_rewrite
from deepstone.backends.torch.arrays import load
from deepstone.backends.torch.lower import Lowering
from deepstone.backends.torch.settings import Settings
from deepstone.graph.graph import Graph
from deepstone.graph.segments import split


def lowered(graph: Graph, weights: Mapping[str, Mapping[str, Any]], settings: Settings) -> nn.Module:
    """Return the network on the job's device, in its number format and mode."""
    refuse_nothing_to_rewrite(graph, settings)
    if settings.checkpointing and graph.opaque:
        raise Unsupported("checkpointing cuts a network between its layers, and a module of your own is only one")
    if settings.checkpointing:
        network: nn.Module = Checkpointed(graph, **settings.lowering)
    else:
        network = Lowering(graph, graph.layers, **settings.lowering).module(graph.input.name)
    load(network, weights)
    settings.place(network)
    return network


class Checkpointed(nn.Module):
    """Runs segments one after the other; all but the last are computed twice."""

    def __init__(self, graph: Graph, *, dropout: bool, space_to_depth: bool = False) -> None:
        super().__init__()
        segments: list[nn.Module] = []
        source = graph.input.name
        for layers in split(graph):
            segments.append(Lowering(graph, layers, dropout=dropout, space_to_depth=space_to_depth).module(source))
            source = layers[-1].name
        self.segments = nn.ModuleList(segments)
        self._saves_random_state = dropout
        self._norms = [module for module in self.modules() if isinstance(module, nn.BatchNorm2d)]

    def forward(self, samples: Tensor, labels: Tensor) -> Tensor:
        x = samples
        for segment in self.segments[:-1]:
            x = cast(
                Tensor,
                checkpoint(
                    cast(Callable[..., Any], segment),
                    x,
                    use_reentrant=False,
                    preserve_rng_state=self._saves_random_state,
                    context_fn=self._contexts,
                ),
            )
        return self.segments[-1](x, labels)

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), self._frozen_statistics()

    @contextmanager
    def _frozen_statistics(self) -> Generator[None, None, None]:
        """Freeze running statistics: recomputing a batch must not update the running mean and variance twice."""
        before = [norm.momentum for norm in self._norms]
        for norm in self._norms:
            norm.momentum = 0.0
        try:
            yield
        finally:
            for norm, momentum in zip(self._norms, before, strict=True):
                norm.momentum = momentum
