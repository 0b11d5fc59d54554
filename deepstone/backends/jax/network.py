"""The graph as one pure function of weights, running statistics and a batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any

import jax

from deepstone.backends.jax.lower import Lowering
from deepstone.backends.jax.settings import Settings
from deepstone.backends.jax.stretch import stretches_of
from deepstone.backends.scopes import scope_name
from deepstone.graph.graph import Graph
from deepstone.graph.stretches import split


class Network:
    """One stretch, or with checkpointing several, of which all but the last are computed again in backward."""

    def __init__(self, graph: Graph, settings: Settings) -> None:
        self._settings = settings
        self._input_scope = scope_name(graph.input.name)
        self._lowering = Lowering(settings=settings, training=settings.training)
        self._stretches = stretches_of(graph, split(graph) if settings.checkpointing else [graph.layers])

    def loss(
        self, parameters: Sequence[Any], buffers: Sequence[Any], images: Any, labels: Any, key: Any | None
    ) -> tuple[Any, list[Any]]:
        """The loss, and the running statistics as they are afterwards."""
        with jax.named_scope(self._input_scope):
            x = images.astype(self._settings.activations)
        held, kept = iter(parameters), iter(buffers)
        after: list[Any] = []
        for number, stretch in enumerate(self._stretches):
            run = partial(stretch.run, self._lowering)
            if number < len(self._stretches) - 1:  # the last one's activations are needed at once
                run = jax.checkpoint(run)
            own = None if key is None else jax.random.fold_in(key, number)
            x, changed = run(
                x, list(islice(held, stretch.parameters)), list(islice(kept, stretch.buffers)), labels, own
            )
            after += changed
        return x, after
