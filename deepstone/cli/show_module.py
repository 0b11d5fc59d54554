"""What `deepstone models` can tell of a torch module of one's own: what goes in, what comes out, how large it is."""

from __future__ import annotations

from typing import Any

from deepstone.absent import as_json
from deepstone.cli.output import print_lines
from deepstone.graph.cost import COST_UNKNOWN, FP32_BYTES
from deepstone.graph.graph import Graph
from deepstone.graph.ops import Module
from deepstone.units import bytes_


def described_module(graph: Graph) -> dict[str, Any]:
    """The same keys as for a graph, and `module`, which says where it comes from."""
    module, weights = _module(graph), _weights(graph)
    unknown = {"forward": COST_UNKNOWN, "backward": COST_UNKNOWN}
    return as_json(
        {
            "name": graph.name,
            "input": list(graph.shapes[graph.input.name]),
            "parameters": weights,
            "flops": unknown,
            "bytes": {"weights": weights * FP32_BYTES, "activations": COST_UNKNOWN},
            "module": {"path": module.path, "function": module.function, "sha256": module.sha256},
            "layers": [
                {
                    "name": layer.name,
                    "op": layer.op.kind,
                    "inputs": list(layer.inputs),
                    "output": list(graph.shapes[layer.name]),
                    "parameters": layer.op.weights if isinstance(layer.op, Module) else 0,
                }
                for layer in graph.layers
            ],
        }
    )


def show_module(graph: Graph) -> None:
    module, weights = _module(graph), _weights(graph)
    shape = "×".join(map(str, graph.shapes[graph.input.name]))
    print_lines(
        [
            f"{graph.name}: the torch module that {module.function} in {module.path} returns",
            f"images {shape}, {graph.classes} classes, {weights:,} parameters ({bytes_(weights * FP32_BYTES)})",
            "What is inside, and its FLOPs, only torch knows; `deepstone layers` times its parts.",
        ]
    )


def _module(graph: Graph) -> Module:
    return next(layer.op for layer in graph.opaque if isinstance(layer.op, Module))


def _weights(graph: Graph) -> int:
    return sum(layer.op.weights for layer in graph.opaque if isinstance(layer.op, Module))
