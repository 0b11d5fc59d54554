"""Images with more or less around them, and cut into tiles that overlap as windows do."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from deepstone.graph.ops import Pad, Pair

Array: TypeAlias = NDArray[Any]


def padded(images: Array, pad: Pad) -> Array:
    """With zeros around them; where a pad is below 0, with so much cut off."""
    top, bottom, left, right = pad
    height, width = images.shape[2:]
    inside = images[:, :, max(0, -top) : height - max(0, -bottom), max(0, -left) : width - max(0, -right)]
    widths = ((0, 0), (0, 0), (max(0, top), max(0, bottom)), (max(0, left), max(0, right)))
    return np.pad(inside, widths)


def cropped(images: Array, pad: Pad, size: Pair) -> Array:
    """What lies inside the padding."""
    top, _, left, _ = pad
    return images[:, :, top : top + size[0], left : left + size[1]]


def tile_counts(output: Pair, step: Pair) -> Pair:
    """How many tiles, each good for `step` of the output, cover it."""
    return -(-output[0] // step[0]), -(-output[1] // step[1])


def tiles_of(images: Array, tile: Pair, step: Pair, counts: Pair) -> Array:
    """(batch, channels, height, width) to (batch, channels, tiles, tile height, tile width), zeros beyond the image."""
    reach = [(count - 1) * each + size for count, each, size in zip(counts, step, tile, strict=True)]
    short = [max(0, wanted - size) for wanted, size in zip(reach, images.shape[2:], strict=True)]
    wide = np.pad(images, ((0, 0), (0, 0), (0, short[0]), (0, short[1])))
    windows = sliding_window_view(wide, tile, axis=(2, 3))[:, :, :: step[0], :: step[1]]
    windows = windows[:, :, : counts[0], : counts[1]]
    return windows.reshape(*images.shape[:2], counts[0] * counts[1], *tile)


def joined(tiles: Array, counts: Pair, output: Pair) -> Array:
    """Tiles that do not overlap, put together again and cut to the output's size."""
    batch, channels, _, height, width = tiles.shape
    grid = tiles.reshape(batch, channels, *counts, height, width).transpose(0, 1, 2, 4, 3, 5)
    whole = grid.reshape(batch, channels, counts[0] * height, counts[1] * width)
    return whole[:, :, : output[0], : output[1]]
