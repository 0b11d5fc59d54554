"""One convolution problem: its sizes, its operation counts, and the error of a result."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from deepstone.absent import Absent
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Conv, Pad, Pair

Pass: TypeAlias = Literal["forward", "data", "weight"]
PASSES: tuple[Pass, ...] = ("forward", "data", "weight")


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A cross-correlation of a batch of images with filters, without a bias: no algorithm depends on it."""

    batch: int
    channels: int
    image: Pair
    filters: int
    kernel: Pair
    stride: Pair = (1, 1)
    pad: Pad = (0, 0, 0, 0)  # top, bottom, left, right; a negative pad crops, which only gradients need
    dilation: Pair = (1, 1)
    groups: int = 1

    @staticmethod
    def of_layer(graph: Graph, layer: Layer, batch: int) -> Problem:
        op = cast(Conv, layer.op)
        channels, height, width = graph.input_shapes(layer)[0]
        return Problem(
            batch=batch,
            channels=channels,
            image=(height, width),
            filters=op.channels,
            kernel=op.kernel,
            stride=op.stride,
            pad=op.pad,
            dilation=op.dilation,
            groups=op.groups,
        )

    @property
    def padded(self) -> Pair:
        top, bottom, left, right = self.pad
        return self.image[0] + top + bottom, self.image[1] + left + right

    @property
    def output(self) -> Pair:
        height, width = (
            (size - (kernel - 1) * dilation - 1) // stride + 1
            for size, kernel, stride, dilation in zip(self.padded, self.kernel, self.stride, self.dilation, strict=True)
        )
        return height, width

    @property
    def fan_in(self) -> int:
        """Return the channels that one filter reads."""
        return self.channels // self.groups

    @property
    def fan_out(self) -> int:
        """Return the filters in one group."""
        return self.filters // self.groups

    @property
    def multiply_adds(self) -> int:
        """Return the multiply-adds of the definition, equal in every pass; those on padding count."""
        positions = self.output[0] * self.output[1] * self.kernel[0] * self.kernel[1]
        return self.batch * self.filters * self.fan_in * positions

    def with_batch(self, batch: int) -> Problem:
        return replace(self, batch=batch)

    def data_gradient(self) -> Problem:
        """Return the convolution that computes the gradient of the images: of the upstream gradient, with flipped
        filters.

        For stride and dilation 1 only.
        """
        assert self.stride == self.dilation == (1, 1)
        reach = (self.kernel[0] - 1, self.kernel[0] - 1, self.kernel[1] - 1, self.kernel[1] - 1)
        top, bottom, left, right = (room - pad for room, pad in zip(reach, self.pad, strict=True))
        return replace(
            self,
            channels=self.filters,
            image=self.output,
            filters=self.channels,
            pad=(top, bottom, left, right),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Operations:
    """Real additions and multiplications: those that replace the convolution's own, and those of transforms."""

    products: int  # 2 per real multiply-add, 8 per complex one
    transforms: int

    @property
    def flops(self) -> int:
        return self.products + self.transforms


def relative_error(found: NDArray[Any], exact: NDArray[np.float64]) -> float | Absent:
    """‖found − exact‖ / ‖exact‖, in float64."""
    if found.shape != exact.shape:
        return Absent(f"the result has the shape {list(found.shape)} and not {list(exact.shape)}")
    size = float(np.linalg.norm(exact))
    error = float(np.linalg.norm(found.astype(np.float64) - exact))
    if not math.isfinite(error):
        return Absent("the result holds numbers that are not finite")
    return error / size if size else error
