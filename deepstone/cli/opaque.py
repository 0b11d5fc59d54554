"""Refuses, where a command must see inside a model, a model that only its framework sees into."""

from __future__ import annotations

from deepstone.errors import UsageError
from deepstone.graph.graph import Graph


def refuse_opaque(graph: Graph, what: str) -> None:
    """`what` needs layers, and knows nothing of modules."""
    if graph.opaque:
        raise UsageError(
            f"{graph.name} is a torch module of your own, which only torch sees into; {what} needs a graph"
        )
