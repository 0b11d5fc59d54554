"""oneDNN's log of a step: the implementation and instruction set of each layer's passes.

The log does not name layers, but each line describes its problem. A line belongs to the layers with that problem; if
several layers have the same one, oneDNN uses the same implementation for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from deepstone.graph import ops
from deepstone.graph.graph import Graph
from deepstone.setups.axes import ISA_ORDER

# oneDNN 3 writes a version and "primitive" before "exec", and a time stamp if told to; oneDNN 2 none of them.
_EXECUTED = re.compile(
    r"^onednn_verbose,(?:v\d,)?(?:\d[^,]*,)?(?:primitive,)?exec,cpu,([a-z_]+),([^,\n]+),(.*)$", re.MULTILINE
)
_SOURCE = re.compile(r"\bsrc[:_]([a-z]+\d+)\b")  # with a colon since oneDNN 3
_MATH_MODE = re.compile(r"\battr-fpmath:([a-z0-9]+)")
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
_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}
_MULTIPLYING = ("convolution", "inner_product", "matmul")  # as oneDNN calls them


@dataclass(frozen=True, kw_only=True, slots=True)
class Executed:
    """One line of the log: what ran, and on what. A truncated line has an empty problem."""

    operation: str
    implementation: str
    direction: str
    source_type: str  # the number type of what it read, as oneDNN writes it: "f32", "bf16"
    math_mode: str  # the type it may take for products of wider numbers: "bf16"; empty where that is theirs
    problem: str


def executed(log: str) -> Iterator[Executed]:
    for operation, implementation, rest in _EXECUTED.findall(log):
        fields = rest.split(",")  # direction, memory descriptors, attributes, auxiliary, problem, time
        problem = fields[4] if len(fields) > 4 else ""
        source = _SOURCE.search(fields[1]) if len(fields) > 1 else None
        mode = _MATH_MODE.search(fields[2]) if len(fields) > 2 else None
        yield Executed(
            operation=operation,
            implementation=implementation,
            direction=fields[0],
            source_type=source[1] if source else "",
            math_mode=mode[1] if mode else "",
            problem=problem,
        )


def implementations(log: str) -> dict[str, list[str]]:
    """Return the implementations per kind of operation, without reorders."""
    found: dict[str, set[str]] = {}
    for line in executed(log):
        if line.operation != "reorder":
            found.setdefault(line.operation, set()).add(line.implementation)
    return {operation: sorted(names) for operation, names in sorted(found.items())}


def onednn_dtypes(log: str) -> set[torch.dtype]:
    """Return the number types that oneDNN's convolutions and matrix products read, as far as torch has them."""
    kinds = {line.source_type for line in executed(log) if line.operation in _MULTIPLYING}
    return {_DTYPES[kind] for kind in kinds if kind in _DTYPES}


def narrowed_products(log: str) -> set[str]:
    """Return the narrower types, if any, that oneDNN was allowed to use for fp32 products."""
    kinds = {line.math_mode for line in executed(log) if line.operation in _MULTIPLYING}
    return kinds - {"", "strict"}


def widest_isa(primitives: dict[str, list[str]]) -> str | None:
    """Return the widest instruction set in names such as `brgconv:avx512_core` or `a:avx2+b:avx512_core`."""
    names = [part for names in primitives.values() for name in names for part in re.split("[:+]", name)]
    known = [name for name in names if name in ISA_ORDER]
    return max(known, key=ISA_ORDER.index, default=None)


def primitives_by_layer(log: str, graph: Graph, batch: int) -> dict[str, list[str]]:
    """Return texts such as `weight gradient: jit:avx512_core` for each layer that oneDNN computed."""
    lines = list(dict.fromkeys(executed(log)))

    @cache  # a deep network has thousands of layers and a few kinds of them
    def computed(op: ops.Op, taken: tuple[ops.Shape, ...], given: ops.Shape) -> list[str]:
        ran = {(name, line.implementation) for line in lines for name in _passes(line, op, taken, given, batch)}
        in_order = sorted(ran, key=lambda pair: (_ORDER.index(pair[0]), pair[1]))
        return [f"{name}: {implementation}" for name, implementation in in_order]

    found = {
        layer.name: computed(layer.op, tuple(graph.input_shapes(layer)), graph.shapes[layer.name])
        for layer in graph.layers
        if isinstance(layer.op, ops.Conv | ops.Dense)
    }
    return {name: texts for name, texts in found.items() if texts}


def _passes(line: Executed, op: ops.Op, taken: Sequence[ops.Shape], given: ops.Shape, batch: int) -> list[str]:
    """Return the passes of the layer that the line computed. A product may fit two passes if sizes are equal."""
    match op, line.operation:
        case ops.Conv(), "convolution" if line.direction in _PASSES:
            same = {"g": 1} | _sizes(line) == _convolution_sizes(op, taken[0], given, batch)
            return [_PASSES[line.direction]] if same else []
        case ops.Dense(), "inner_product" if line.direction in _PASSES:
            same = _sizes(line) == {"mb": batch, "ic": taken[0][0], "oc": given[0]}
            return [_PASSES[line.direction]] if same else []
        case ops.Dense(), "matmul":
            return _product_passes(line, batch, taken[0][0], given[0])
        case _:
            return []


def _sizes(line: Executed) -> dict[str, int]:
    """Parse `mb8_ic3oc64…` to a mapping."""
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
    sizes = {"g": op.groups, "mb": batch, "ic": taken[0], "oc": op.channels}
    for side, name in enumerate("hw"):
        before, after = op.pad[2 * side : 2 * side + 2]
        sizes |= {
            f"i{name}": taken[1 + side] + (before + after if padded_before else 0),
            f"o{name}": given[1 + side],
            f"k{name}": op.kernel[side],
            f"s{name}": op.stride[side],
            f"d{name}": op.dilation[side] - 1,
            f"p{name}": 0 if padded_before else before,
        }
    return sizes
