"""Converts NumPy arrays between the graph's order, channels first, and channels last."""

from __future__ import annotations

from typing import Any


def channels_last(array: Any) -> Any:
    """(batch, channels, height, width) to (batch, height, width, channels); arrays that are not images do not
    change."""
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array


def channels_first(array: Any) -> Any:
    """The way back."""
    return array.transpose(0, 3, 1, 2) if array.ndim == 4 else array


def kernel_last(weight: Any) -> Any:
    """A convolution weight, (out, in, height, width) to (height, width, in, out)."""
    return weight.transpose(2, 3, 1, 0)


def kernel_first(weight: Any) -> Any:
    """The way back."""
    return weight.transpose(3, 2, 0, 1)
