"""Ranges in the profiler's record that say which layer is running; in the forward function of traced steps only."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeGuard

from torch import fx, nn
from torch.profiler import record_function

from deepstone.backends.torch.lower import LAYER

LAYER_RANGE = "deepstone layer: "


@contextmanager
def layer_ranges(network: nn.Module) -> Generator[None, None, None]:
    """Inside, the network's generated code opens a range around each layer's calls. Not for compiled networks."""
    originals = {module: module.graph for module in network.modules() if _is_ours(module)}
    try:
        for module, graph in originals.items():
            module.graph = _with_ranges(graph)
        yield
    finally:
        for module, graph in originals.items():
            module.graph = graph


def _is_ours(module: nn.Module) -> TypeGuard[fx.GraphModule]:
    """A user's own module may hold generated code too, in a form that is not ours to change."""
    return isinstance(module, fx.GraphModule) and any(LAYER in node.meta for node in module.graph.nodes)


def _with_ranges(original: fx.Graph) -> fx.Graph:
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    current, opened = "", None
    for node in original.nodes:
        layer = node.meta.get(LAYER, "")
        if layer != current:
            if opened is not None:
                graph.call_function(end_range, (opened,))
            opened = graph.call_function(begin_range, (LAYER_RANGE + layer,)) if layer else None
            current = layer
        copies[node] = graph.node_copy(node, lambda argument: copies[argument])
    graph.lint()
    return graph


def begin_range(name: str) -> record_function:
    opened = record_function(name)
    opened.__enter__()
    return opened


def end_range(opened: record_function) -> None:
    opened.__exit__(None, None, None)
