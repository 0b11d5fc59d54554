"""Padding as windows meet it: what they reach of it, and what TensorFlow calls SAME."""

from __future__ import annotations

from typing import TypeAlias

from deepstone.graph.ops import AveragePool, Conv, MaxPool, Pad, Shape

Windowed: TypeAlias = Conv | MaxPool | AveragePool


def reached_pad(op: Windowed, image: Shape) -> Pad:
    """Return the padding that windows reach: less than declared if they stop before its end, more if a pool rounds
    up."""
    _, rows, columns = op.output([image])
    top, _, left, _ = op.pad
    below = _beyond(rows, op.stride[0], op.kernel[0], image[1] + top)
    beside = _beyond(columns, op.stride[1], op.kernel[1], image[2] + left)
    return top, below, left, beside


def same_pad(op: Windowed, image: Shape) -> Pad | None:
    """Return the padding of TensorFlow's SAME, or None if that gives another number of windows."""
    _, *counts = op.output([image])
    if counts != [-(-size // stride) for size, stride in zip(image[1:], op.stride, strict=True)]:
        return None
    rows = _beyond(counts[0], op.stride[0], op.kernel[0], image[1])
    columns = _beyond(counts[1], op.stride[1], op.kernel[1], image[2])
    return rows // 2, rows - rows // 2, columns // 2, columns - columns // 2


def _beyond(count: int, stride: int, kernel: int, size: int) -> int:
    """Return how far the last window reaches past the end."""
    return max(0, (count - 1) * stride + kernel - size)
