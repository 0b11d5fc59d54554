"""Rewrites a strided convolution over few channels: blocks of pixels become channels, and the stride becomes 1.

    image   3 x 224 x 224, padded to 230 x 230     blocks of 2 x 2     12 x 115 x 115
    kernel  3 x 7 x 7, padded to 8 x 8             blocks of 2 x 2     12 x 4 x 4

Every output is the sum of the same products, beside products with zeros. Matrix units, which take channels in groups of
eight or more, have little to do with three.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Conv, Pad, Pair, Shape

_FEW_CHANNELS: Final = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocks:
    """`side`: of a block, in pixels. `image_pad`: rows and columns around the image (top, bottom, left, right); a
    negative number cuts off what no window reaches. `kernel_pad`: rows and columns of zeros after those of the
    kernel."""

    side: int
    image_pad: Pad
    kernel_pad: Pair


def blocks_of(op: Conv, source: Shape) -> Blocks | None:
    """Return how to rewrite a convolution of this source; None if it has no stride, or channels enough."""
    channels, height, width = source
    side = op.stride[0]
    if op.stride != (side, side) or side < 2 or channels > _FEW_CHANNELS or op.groups != 1 or op.dilation != (1, 1):
        return None
    _, rows, columns = op.output([source])
    top, _, left, _ = op.pad
    bottom, below = _reach(height + top, op.kernel[0], rows, side)
    right, beside = _reach(width + left, op.kernel[1], columns, side)
    return Blocks(side=side, image_pad=(top, bottom, left, right), kernel_pad=(below, beside))


def rewritten(graph: Graph) -> tuple[Layer, ...]:
    """Return the convolutions of a network that can be rewritten."""
    return tuple(
        layer
        for layer in graph.layers
        if isinstance(layer.op, Conv) and blocks_of(layer.op, graph.input_shapes(layer)[0]) is not None
    )


def why_not(graph: Graph) -> str:
    """Return why nothing of a network would be rewritten; empty if something is."""
    if rewritten(graph):
        return ""
    return (
        f"space_to_depth=on rewrites strided convolutions over at most {_FEW_CHANNELS} channels, and {graph.name} has "
        "none that Deepstone can see; leave it out"
    )


def _reach(pixels: int, kernel: int, windows: int, side: int) -> tuple[int, int]:
    """Return what must follow the pixels so that whole blocks hold all windows, and what must follow the kernel."""
    blocks = -(-kernel // side)
    return (windows - 1 + blocks) * side - pixels, blocks * side - kernel
