"""The attributes of one ONNX node, read by name and type. Attributes that nothing reads are refused by name.

Convolutions and pools are read here as a whole: ONNX has several ways to give their padding.
"""

from __future__ import annotations

import math

from deepstone.exchange.onnx_file import Attribute, Constant, Node, readable
from deepstone.graph.ops import AveragePool, Conv, MaxPool, Pad, Pair, Shape


class Refused(ValueError):
    """The reason why a node has no layer here; the reader adds its name."""


class Attributes:
    def __init__(self, node: Node) -> None:
        self._left: dict[str, Attribute] = dict(node.attributes)

    def whole(self, name: str, default: int) -> int:
        value = self._left.pop(name, default)
        if not isinstance(value, int):
            raise Refused(f"{name} is not a whole number")
        return value

    def number(self, name: str, default: float) -> float:
        value = self._left.pop(name, default)
        if not isinstance(value, float) or not math.isfinite(value):
            raise Refused(f"{name} is not a finite number")
        return value

    def word(self, name: str, default: str) -> str:
        value = self._left.pop(name, default)
        if not isinstance(value, str):
            raise Refused(f"{name} is not text")
        return value

    def wholes(self, name: str) -> tuple[int, ...] | None:
        value = self._left.pop(name, None)
        if value is None:
            return None
        if not isinstance(value, tuple):
            raise Refused(f"{name} is not a list of whole numbers")
        found = tuple(each for each in value if isinstance(each, int))
        if len(found) != len(value):
            raise Refused(f"{name} is not a list of whole numbers")
        return found

    def pair(self, name: str, default: Pair | None = None) -> Pair:
        found = self.wholes(name)
        if found is None and default is not None:
            return default
        if found is None or len(found) != 2:
            raise Refused(f"{name} must be 2 whole numbers, one per side of an image; it {_has(found)}")
        return found[0], found[1]

    def array(self, name: str) -> Constant | None:
        value = self._left.pop(name, None)
        if value is not None and not isinstance(value, Constant):
            raise Refused(f"{name} is not an array")
        return value

    def only(self, name: str, *allowed: int | float, default: int | float) -> None:
        """Refuse the attribute unless it has one of these values."""
        value = self._left.pop(name, default)
        if value not in allowed:
            raise Refused(f"{name}={readable(str(value))} has no layer here; only {' or '.join(map(str, allowed))} has")

    def ignore(self, *names: str) -> None:
        for name in names:
            self._left.pop(name, None)

    def finish(self) -> None:
        if self._left:
            unknown = ", ".join(sorted(readable(name) for name in self._left))
            raise Refused(f"has attributes that are not known here: {unknown}")


def _has(found: tuple[int, ...] | None) -> str:
    return "is missing" if found is None else f"has {len(found)}"


def read_conv(node: Node, image: Shape, weight: Constant, *, bias: bool) -> Conv:
    attributes = Attributes(node)
    if len(weight.shape) != 4:
        raise Refused(f"its weight has {len(weight.shape)} sides; a convolution of images has 4")
    channels, fan_in, *sides = weight.shape
    kernel = (sides[0], sides[1])
    if attributes.pair("kernel_shape", kernel) != kernel:
        raise Refused(f"kernel_shape does not fit the shape of its weight {list(weight.shape)}")
    groups = attributes.whole("group", 1)
    if fan_in * groups != image[0]:
        raise Refused(f"its weight {list(weight.shape)} in {groups} groups does not fit {image[0]} channels")
    stride, dilation = attributes.pair("strides", (1, 1)), attributes.pair("dilations", (1, 1))
    pad = _pad(attributes, image, kernel, stride, dilation)
    attributes.finish()
    return Conv(channels=channels, kernel=kernel, stride=stride, pad=pad, dilation=dilation, groups=groups, bias=bias)


def read_max_pool(node: Node, image: Shape) -> MaxPool:
    attributes = Attributes(node)
    kernel, stride, pad, ceil_mode = _pool(attributes, image)
    attributes.ignore("storage_order")  # the order of the second output, which nobody uses
    attributes.finish()
    return MaxPool(kernel=kernel, stride=stride, pad=pad, ceil_mode=ceil_mode)


def read_average_pool(node: Node, image: Shape) -> AveragePool:
    attributes = Attributes(node)
    kernel, stride, pad, ceil_mode = _pool(attributes, image)
    count_pad = bool(attributes.whole("count_include_pad", 0))
    attributes.finish()
    return AveragePool(kernel=kernel, stride=stride, pad=pad, ceil_mode=ceil_mode, count_pad=count_pad)


def _pool(attributes: Attributes, image: Shape) -> tuple[Pair, Pair, Pad, bool]:
    kernel, stride = attributes.pair("kernel_shape"), attributes.pair("strides", (1, 1))
    if attributes.pair("dilations", (1, 1)) != (1, 1):
        raise Refused("dilations other than 1 have no layer here")
    return kernel, stride, _pad(attributes, image, kernel, stride, (1, 1)), bool(attributes.whole("ceil_mode", 0))


def _pad(attributes: Attributes, image: Shape, kernel: Pair, stride: Pair, dilation: Pair) -> Pad:
    """Convert the padding: ONNX lists the beginnings of all dimensions, then their ends; we list top, bottom, left,
    right."""
    how = attributes.word("auto_pad", "NOTSET")
    pads = attributes.wholes("pads") or (0, 0, 0, 0)
    if len(pads) != 4:
        raise Refused(f"pads must be 4 whole numbers, not {len(pads)}")
    if how == "NOTSET":
        top, left, bottom, right = pads
        return top, bottom, left, right
    if how == "VALID":
        return 0, 0, 0, 0
    if how not in ("SAME_UPPER", "SAME_LOWER"):
        raise Refused("auto_pad is not one of NOTSET, VALID, SAME_UPPER, SAME_LOWER")
    if min(*kernel, *stride, *dilation) < 1:
        raise Refused("kernel, strides and dilations must be at least 1")
    rows, columns = (
        _same(size, *sides, at_end=how == "SAME_UPPER")
        for size, *sides in zip(image[1:], kernel, stride, dilation, strict=True)
    )
    return *rows, *columns


def _same(size: int, kernel: int, stride: int, dilation: int, *, at_end: bool) -> Pair:
    """Return the SAME padding: every stride begins a window; an odd pixel goes to the end, or to the beginning."""
    total = max((-(-size // stride) - 1) * stride + dilation * (kernel - 1) + 1 - size, 0)
    less, more = total // 2, total - total // 2
    return (less, more) if at_end else (more, less)
