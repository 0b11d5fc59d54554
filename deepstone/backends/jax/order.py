"""The order of an image's sides in memory, and what follows from it for every operation on images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from deepstone.backends.layouts import channels_first, channels_last, kernel_first, kernel_last

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """Where the channels, rows and columns of a batch of images lie."""

    name: str
    channel_axis: int
    kernel_output_axis: int
    image_axes: tuple[int, int]  # rows, columns
    dimension_numbers: tuple[str, str, str]  # of a convolution: images, kernels, outputs
    images: Callable[[Any], Any]  # from the graph's order, and back
    images_back: Callable[[Any], Any]
    kernels: Callable[[Any], Any]
    kernels_back: Callable[[Any], Any]

    @property
    def all_but_channels(self) -> tuple[int, int, int]:
        return (0, *self.image_axes)

    def sides(self, rows: T, columns: T, other: T) -> tuple[T, T, T, T]:
        """One value for each side of a batch of images."""
        values = [other] * 4
        values[self.image_axes[0]], values[self.image_axes[1]] = rows, columns
        return values[0], values[1], values[2], values[3]

    def along_channels(self, vector: Any) -> Any:
        """One value per channel, so that it fits an image."""
        return vector if self.channel_axis == 3 else vector[:, None, None]


def _same(array: Any) -> Any:
    return array


NCHW = Order(
    name="nchw",
    channel_axis=1,
    kernel_output_axis=0,
    image_axes=(2, 3),
    dimension_numbers=("NCHW", "OIHW", "NCHW"),
    images=_same,
    images_back=_same,
    kernels=_same,
    kernels_back=_same,
)
NHWC = Order(
    name="nhwc",
    channel_axis=3,
    kernel_output_axis=3,
    image_axes=(1, 2),
    dimension_numbers=("NHWC", "HWIO", "NHWC"),
    images=channels_last,
    images_back=channels_first,
    kernels=kernel_last,
    kernels_back=kernel_first,
)
