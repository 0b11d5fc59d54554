"""Padding as TensorFlow has it: a list of pairs per side, or SAME, which it works out by itself."""

from __future__ import annotations

from deepstone.backends.tensorflow.settings import Settings
from deepstone.graph.ops import AveragePool, Conv, MaxPool, Pad, Shape


def explicit_padding(pad: Pad, settings: Settings) -> list[list[int]]:
    top, bottom, left, right = pad
    sides = [[top, bottom], [left, right]]
    return [[0, 0], *sides, [0, 0]] if settings.channels_last else [[0, 0], [0, 0], *sides]


def reached_pad(op: Conv | MaxPool | AveragePool, image: Shape) -> Pad:
    """The padding that windows touch: less than asked where they stop short of it, more where a pool rounds up."""
    _, rows, columns = op.output([image])
    top, _, left, _ = op.pad
    below = _beyond(rows, op.stride[0], op.kernel[0], image[1] + top)
    beside = _beyond(columns, op.stride[1], op.kernel[1], image[2] + left)
    return top, below, left, beside


def same_pad(op: Conv | MaxPool | AveragePool, image: Shape) -> Pad | None:
    """The padding of TensorFlow's SAME, or None where that gives another number of windows."""
    _, *counts = op.output([image])
    if counts != [-(-size // stride) for size, stride in zip(image[1:], op.stride, strict=True)]:
        return None
    rows = _beyond(counts[0], op.stride[0], op.kernel[0], image[1])
    columns = _beyond(counts[1], op.stride[1], op.kernel[1], image[2])
    return rows // 2, rows - rows // 2, columns // 2, columns - columns // 2


def _beyond(count: int, stride: int, kernel: int, size: int) -> int:
    """How far the last window reaches past the end."""
    return max(0, (count - 1) * stride + kernel - size)
