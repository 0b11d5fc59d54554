"""oneDNN's own account of a step, layer by layer: which implementation, for which instruction set, did which pass.

The log does not name layers, but each of its lines spells out the problem that was solved. A line belongs to the
layers with that problem; where several layers have the same one, oneDNN gives them the same implementation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from deepstone.graph import ops
from deepstone.graph.graph import Graph, Layer

# oneDNN 3 writes a version and "primitive" before "exec", and a time stamp if told to; oneDNN 2 none of them.
_EXECUTED = re.compile(
    r"^onednn_verbose,(?:v\d,)?(?:\d[^,]*,)?(?:primitive,)?exec,cpu,([a-z_]+),([^,\n]+),(.*)$", re.MULTILINE
)
_SIZE = re.compile(r"([a-z]+)(\d+)")
_PRODUCT = re.compile(r"^(\d+)x(\d+):(\d+)x(\d+)(?::\d+x\d+)?$")
_PASSES = {
    "forward_training": "forward",
    "forward_inference": "forward",
    "backward": "backward",
    "backward_data": "data gradient",
    "backward_weights": "weight gradient",
}
_ORDER = ("forward", "backward", "data gradient", "weight gradient")


@dataclass(frozen=True, kw_only=True, slots=True)
class Executed:
    """One line of the log: what ran, and on what. A line that was cut off has an empty problem."""

    operation: str
    implementation: str
    direction: str
    problem: str


def executed(log: str) -> Iterator[Executed]:
    for operation, implementation, rest in _EXECUTED.findall(log):
        fields = rest.split(",")  # direction, memory descriptors, attributes, auxiliary, problem, time
        problem = fields[4] if len(fields) > 4 else ""
        yield Executed(operation=operation, implementation=implementation, direction=fields[0], problem=problem)


def primitives_by_layer(log: str, graph: Graph, batch: int) -> dict[str, list[str]]:
    """For each layer that oneDNN had a part in, texts such as `weight gradient: jit:avx512_core`."""
    lines = list(dict.fromkeys(executed(log)))
    found: dict[str, list[str]] = {}
    for layer in graph.layers:
        ran = {(name, line.implementation) for line in lines for name in _passes(line, graph, layer, batch)}
        if ran:
            in_order = sorted(ran, key=lambda pair: (_ORDER.index(pair[0]), pair[1]))
            found[layer.name] = [f"{name}: {implementation}" for name, implementation in in_order]
    return found


def _passes(line: Executed, graph: Graph, layer: Layer, batch: int) -> list[str]:
    """What the line did for the layer, if anything. A product may fit two passes where sizes are equal."""
    taken, given = graph.input_shapes(layer), graph.shapes[layer.name]
    match layer.op, line.operation:
        case ops.Conv(), "convolution" if line.direction in _PASSES:
            same = {"g": 1} | _sizes(line) == _convolution_sizes(layer.op, taken[0], given, batch)
            return [_PASSES[line.direction]] if same else []
        case ops.Dense(), "inner_product" if line.direction in _PASSES:
            same = _sizes(line) == {"mb": batch, "ic": taken[0][0], "oc": given[0]}
            return [_PASSES[line.direction]] if same else []
        case ops.Dense(), "matmul":
            return _product_passes(line, batch, taken[0][0], given[0])
        case _:
            return []


def _sizes(line: Executed) -> dict[str, int]:
    """`mb8_ic3oc64…` as a mapping."""
    return {name: int(size) for name, size in _SIZE.findall(line.problem)}


def _product_passes(line: Executed, batch: int, taken: int, given: int) -> list[str]:
    product = _PRODUCT.match(line.problem)
    if product is None:
        return []
    rows, depth, _, columns = (int(size) for size in product.groups())
    meanings = [
        ((batch, taken, given), "forward"),
        ((batch, given, taken), "data gradient"),
        ((given, batch, taken), "weight gradient"),
        ((taken, batch, given), "weight gradient"),
    ]
    return [name for sizes, name in meanings if sizes == (rows, depth, columns)]


def _convolution_sizes(op: ops.Conv, taken: ops.Shape, given: ops.Shape, batch: int) -> dict[str, int]:
    top, bottom, left, right = op.pad
    padded_before = top != bottom or left != right  # torch pads such images first, and the convolution does not
    return {
        "g": op.groups,
        "mb": batch,
        "ic": taken[0],
        "oc": op.channels,
        "ih": taken[1] + (top + bottom if padded_before else 0),
        "oh": given[1],
        "kh": op.kernel[0],
        "sh": op.stride[0],
        "dh": op.dilation[0] - 1,
        "ph": 0 if padded_before else top,
        "iw": taken[2] + (left + right if padded_before else 0),
        "ow": given[2],
        "kw": op.kernel[1],
        "sw": op.stride[1],
        "dw": op.dilation[1] - 1,
        "pw": 0 if padded_before else left,
    }
