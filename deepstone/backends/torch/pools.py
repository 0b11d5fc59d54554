"""Pools whose padding torch's own pools cannot express: uneven sides, or more than half the kernel."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepstone.graph.ops import AveragePool, MaxPool, Pad, Shape


def torch_takes(pad: Pad, kernel: tuple[int, int]) -> bool:
    top, bottom, left, right = pad
    return top == bottom and left == right and 2 * top <= kernel[0] and 2 * left <= kernel[1]


def outer_pad(pad: Pad) -> tuple[int, int, int, int]:
    """torch's order of sides."""
    top, bottom, left, right = pad
    return left, right, top, bottom


class PaddedMaxPool(nn.Module):
    """Pads first; a window that torch would add inside the trailing pad is cut off again."""

    def __init__(self, op: MaxPool, output: Shape) -> None:
        super().__init__()
        self._op = op
        self._height, self._width = output[1:]

    def forward(self, x: Tensor) -> Tensor:
        padded = F.pad(x, outer_pad(self._op.pad), value=float("-inf"))
        pooled = F.max_pool2d(padded, self._op.kernel, self._op.stride, ceil_mode=self._op.ceil_mode)
        return pooled[:, :, : self._height, : self._width]


class PaddedAveragePool(nn.Module):
    """Pads with zeros, adds up each window, and divides by how much of it counts."""

    divisor: Tensor

    def __init__(self, op: AveragePool, source: Shape, output: Shape) -> None:
        super().__init__()
        self._op = op
        self._height, self._width = output[1:]
        ones = torch.ones(1, 1, *source[1:])
        counted = F.pad(ones, outer_pad(op.pad), value=1.0 if op.count_pad else 0.0)
        self.register_buffer("divisor", self._sums(counted), persistent=False)  # whole numbers, exact in any type

    def _sums(self, padded: Tensor) -> Tensor:
        sums = F.avg_pool2d(padded, self._op.kernel, self._op.stride, ceil_mode=self._op.ceil_mode, divisor_override=1)
        return sums[:, :, : self._height, : self._width]

    def forward(self, x: Tensor) -> Tensor:
        return self._sums(F.pad(x, outer_pad(self._op.pad))) / self.divisor
