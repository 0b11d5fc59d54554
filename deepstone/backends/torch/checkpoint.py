"""Checkpointing: the graph in stretches, each of which forgets its activations and computes them again in backward."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from deepstone.backends.torch.lower import Lowering
from deepstone.graph.graph import Graph
from deepstone.graph.stretches import split


class Checkpointed(nn.Module):
    """Runs stretches one after the other; all but the last are computed twice."""

    def __init__(self, graph: Graph, *, dropout: bool) -> None:
        super().__init__()
        stretches: list[nn.Module] = []
        source = graph.input.name
        for layers in split(graph):
            stretches.append(Lowering(graph, layers, dropout=dropout).module(source))
            source = layers[-1].name
        self.stretches = nn.ModuleList(stretches)
        self._keep_random_state = dropout
        self._norms = [module for module in self.modules() if isinstance(module, nn.BatchNorm2d)]

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        x = images
        for stretch in self.stretches[:-1]:
            x = cast(
                Tensor,
                checkpoint(
                    cast(Callable[..., Any], stretch),
                    x,
                    use_reentrant=False,
                    preserve_rng_state=self._keep_random_state,
                    context_fn=self._contexts,
                ),
            )
        return self.stretches[-1](x, labels)

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), self._frozen_statistics()

    @contextmanager
    def _frozen_statistics(self) -> Generator[None, None, None]:
        """The second computation of a batch must not count twice in the running mean and variance."""
        before = [norm.momentum for norm in self._norms]
        for norm in self._norms:
            norm.momentum = 0.0
        try:
            yield
        finally:
            for norm, momentum in zip(self._norms, before, strict=True):
                norm.momentum = momentum
