"""One convolution to be computed: its sizes, and what it takes for an algorithm to apply."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast

from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Conv, Pad, Pair

Pass: TypeAlias = Literal["forward", "data", "weight"]
PASSES: tuple[Pass, ...] = ("forward", "data", "weight")


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A cross-correlation of a batch of images with filters. A bias is no part of it: it belongs to no algorithm."""

    batch: int
    channels: int
    image: Pair
    filters: int
    kernel: Pair
    stride: Pair = (1, 1)
    pad: Pad = (0, 0, 0, 0)  # top, bottom, left, right; below 0 it cuts off, which only gradients need
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
        """Channels that one filter sees."""
        return self.channels // self.groups

    @property
    def fan_out(self) -> int:
        """Filters in one group."""
        return self.filters // self.groups

    @property
    def multiply_adds(self) -> int:
        """Of the definition, the same in every pass; those with padding count."""
        positions = self.output[0] * self.output[1] * self.kernel[0] * self.kernel[1]
        return self.batch * self.filters * self.fan_in * positions

    def with_batch(self, batch: int) -> Problem:
        return replace(self, batch=batch)

    def data_gradient(self) -> Problem:
        """The convolution that gives the gradient of the images: of the upstream gradient, with filters turned around.

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

    def to_json(self) -> dict[str, Any]:
        """Per sample, as results show it."""
        return {
            "input": [self.channels, *self.image],
            "output": [self.filters, *self.output],
            "kernel": list(self.kernel),
            "stride": list(self.stride),
            "pad": list(self.pad),
            "dilation": list(self.dilation),
            "groups": self.groups,
        }
