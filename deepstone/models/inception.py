"""Inception-v3 as in torchvision and Inception-v4 as in timm, both at 299x299, without auxiliary head.

Every convolution is followed by batch norm and ReLU: `X.conv`, `X.bn`, `X.relu` where the sources have a module X.
"""

from __future__ import annotations

from typing import NamedTuple

from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph

_EPSILON = 1e-3


class _Conv(NamedTuple):
    channels: int
    height: int
    width: int
    stride: int = 1
    pads: bool = True


def _same(channels: int, height: int, width: int) -> _Conv:
    """Keeps the image's size."""
    return _Conv(channels, height, width)


def _valid(channels: int, height: int, width: int) -> _Conv:
    """Takes only windows that lie inside the image."""
    return _Conv(channels, height, width, pads=False)


def _halve(channels: int) -> _Conv:
    """3x3, every second pixel, inside the image: what halves it."""
    return _Conv(channels, 3, 3, stride=2, pads=False)


def inception_v3() -> Graph:
    b = Builder("inception-v3")
    x = b.input("input", (3, 299, 299))
    x = _unit(b, "Conv2d_1a_3x3", x, _halve(32))
    x = _unit(b, "Conv2d_2a_3x3", x, _valid(32, 3, 3))
    x = _unit(b, "Conv2d_2b_3x3", x, _same(64, 3, 3))
    x = b.max_pool("maxpool1", x, kernel=3, stride=2)
    x = _unit(b, "Conv2d_3b_1x1", x, _same(80, 1, 1))
    x = _unit(b, "Conv2d_4a_3x3", x, _valid(192, 3, 3))
    x = b.max_pool("maxpool2", x, kernel=3, stride=2)
    for name, pooled in (("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)):
        x = _v3_a(b, name, x, pooled)
    x = _v3_b(b, "Mixed_6a", x)
    for name, inner in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
        x = _v3_c(b, name, x, inner)
    x = _v3_d(b, "Mixed_7a", x)
    for name in ("Mixed_7b", "Mixed_7c"):
        x = _v3_e(b, name, x)
    x = b.global_pool("avgpool", x)
    x = b.dropout("dropout", x, rate=0.5)
    x = b.flatten("flatten", x)
    return b.build_classifier("fc", x, classes=1000)


def _v3_a(b: Builder, name: str, x: str, pooled: int) -> str:
    """35x35."""
    one = _unit(b, f"{name}.branch1x1", x, _same(64, 1, 1))
    five = _chain(b, f"{name}.branch5x5_", 1, x, _same(48, 1, 1), _same(64, 5, 5))
    double = _chain(b, f"{name}.branch3x3dbl_", 1, x, _same(64, 1, 1), _same(96, 3, 3), _same(96, 3, 3))
    pool = _average(b, f"{name}.branch_pool.pool", x, count_pad=True)
    pool = _unit(b, f"{name}.branch_pool", pool, _same(pooled, 1, 1))
    return b.concat(f"{name}.concat", one, five, double, pool)


def _v3_b(b: Builder, name: str, x: str) -> str:
    """35x35 to 17x17."""
    three = _unit(b, f"{name}.branch3x3", x, _halve(384))
    double = _chain(b, f"{name}.branch3x3dbl_", 1, x, _same(64, 1, 1), _same(96, 3, 3), _halve(96))
    return _beside_pool(b, name, x, "branch_pool", three, double)


def _v3_c(b: Builder, name: str, x: str, inner: int) -> str:
    """17x17."""
    one = _unit(b, f"{name}.branch1x1", x, _same(192, 1, 1))
    seven = _chain(b, f"{name}.branch7x7_", 1, x, _same(inner, 1, 1), _same(inner, 1, 7), _same(192, 7, 1))
    double = _double_seven(b, f"{name}.branch7x7dbl_", 1, x, (inner, inner, inner, inner, 192))
    pool = _average(b, f"{name}.branch_pool.pool", x, count_pad=True)
    pool = _unit(b, f"{name}.branch_pool", pool, _same(192, 1, 1))
    return b.concat(f"{name}.concat", one, seven, double, pool)


def _v3_d(b: Builder, name: str, x: str) -> str:
    """17x17 to 8x8."""
    three = _chain(b, f"{name}.branch3x3_", 1, x, _same(192, 1, 1), _halve(320))
    seven = _chain(b, f"{name}.branch7x7x3_", 1, x, _same(192, 1, 1), _same(192, 1, 7), _same(192, 7, 1), _halve(192))
    return _beside_pool(b, name, x, "branch_pool", three, seven)


def _v3_e(b: Builder, name: str, x: str) -> str:
    """8x8."""
    one = _unit(b, f"{name}.branch1x1", x, _same(320, 1, 1))
    three = _unit(b, f"{name}.branch3x3_1", x, _same(384, 1, 1))
    three = _fork(b, f"{name}.branch3x3_2", f"{name}.branch3x3.concat", three, 384)
    double = _chain(b, f"{name}.branch3x3dbl_", 1, x, _same(448, 1, 1), _same(384, 3, 3))
    double = _fork(b, f"{name}.branch3x3dbl_3", f"{name}.branch3x3dbl.concat", double, 384)
    pool = _average(b, f"{name}.branch_pool.pool", x, count_pad=True)
    pool = _unit(b, f"{name}.branch_pool", pool, _same(192, 1, 1))
    return b.concat(f"{name}.concat", one, three, double, pool)


def inception_v4() -> Graph:
    """The dropout is the paper's (it keeps 0.8); timm has the layer and leaves its rate at 0."""
    b = Builder("inception-v4")
    x = b.input("input", (3, 299, 299))
    x = _chain(b, "features.", 0, x, _halve(32), _valid(32, 3, 3), _same(64, 3, 3))
    x = _v4_stem(b, x)
    for number in range(6, 10):
        x = _v4_a(b, f"features.{number}", x)
    x = _v4_a_to_b(b, "features.10", x)
    for number in range(11, 18):
        x = _v4_b(b, f"features.{number}", x)
    x = _v4_b_to_c(b, "features.18", x)
    for number in range(19, 22):
        x = _v4_c(b, f"features.{number}", x)
    x = b.global_pool("global_pool", x)
    x = b.flatten("flatten", x)
    x = b.dropout("head_drop", x, rate=0.2)
    return b.build_classifier("last_linear", x, classes=1000)


def _v4_stem(b: Builder, x: str) -> str:
    """The three joins of figure 3 of the paper, 147x147 to 35x35."""
    pool = b.max_pool("features.3.maxpool", x, kernel=3, stride=2)
    conv = _unit(b, "features.3.conv", x, _halve(96))
    x = b.concat("features.3.concat", pool, conv)
    short = _chain(b, "features.4.branch0.", 0, x, _same(64, 1, 1), _valid(96, 3, 3))
    long = _chain(b, "features.4.branch1.", 0, x, _same(64, 1, 1), _same(64, 1, 7), _same(64, 7, 1), _valid(96, 3, 3))
    x = b.concat("features.4.concat", short, long)
    conv = _unit(b, "features.5.conv", x, _halve(192))
    pool = b.max_pool("features.5.maxpool", x, kernel=3, stride=2)
    return b.concat("features.5.concat", conv, pool)


def _v4_a(b: Builder, name: str, x: str) -> str:
    """35x35."""
    one = _unit(b, f"{name}.branch0", x, _same(96, 1, 1))
    three = _chain(b, f"{name}.branch1.", 0, x, _same(64, 1, 1), _same(96, 3, 3))
    double = _chain(b, f"{name}.branch2.", 0, x, _same(64, 1, 1), _same(96, 3, 3), _same(96, 3, 3))
    return b.concat(f"{name}.concat", one, three, double, _v4_pool(b, name, x, 96))


def _v4_a_to_b(b: Builder, name: str, x: str) -> str:
    """35x35 to 17x17."""
    three = _unit(b, f"{name}.branch0", x, _halve(384))
    double = _chain(b, f"{name}.branch1.", 0, x, _same(192, 1, 1), _same(224, 3, 3), _halve(256))
    return _beside_pool(b, name, x, "branch2", three, double)


def _v4_b(b: Builder, name: str, x: str) -> str:
    """17x17."""
    one = _unit(b, f"{name}.branch0", x, _same(384, 1, 1))
    seven = _chain(b, f"{name}.branch1.", 0, x, _same(192, 1, 1), _same(224, 1, 7), _same(256, 7, 1))
    double = _double_seven(b, f"{name}.branch2.", 0, x, (192, 192, 224, 224, 256))
    return b.concat(f"{name}.concat", one, seven, double, _v4_pool(b, name, x, 128))


def _v4_b_to_c(b: Builder, name: str, x: str) -> str:
    """17x17 to 8x8."""
    three = _chain(b, f"{name}.branch0.", 0, x, _same(192, 1, 1), _halve(192))
    seven = _chain(b, f"{name}.branch1.", 0, x, _same(256, 1, 1), _same(256, 1, 7), _same(320, 7, 1), _halve(320))
    return _beside_pool(b, name, x, "branch2", three, seven)


def _v4_c(b: Builder, name: str, x: str) -> str:
    """8x8."""
    one = _unit(b, f"{name}.branch0", x, _same(256, 1, 1))
    three = _unit(b, f"{name}.branch1_0", x, _same(384, 1, 1))
    three = _fork(b, f"{name}.branch1_1", f"{name}.branch1.concat", three, 256)
    double = _chain(b, f"{name}.branch2_", 0, x, _same(384, 1, 1), _same(448, 3, 1), _same(512, 1, 3))
    double = _fork(b, f"{name}.branch2_3", f"{name}.branch2.concat", double, 256)
    return b.concat(f"{name}.concat", one, three, double, _v4_pool(b, name, x, 256))


def _v4_pool(b: Builder, name: str, x: str, channels: int) -> str:
    pool = _average(b, f"{name}.branch3.0", x, count_pad=False)
    return _unit(b, f"{name}.branch3.1", pool, _same(channels, 1, 1))


def _beside_pool(b: Builder, name: str, x: str, pool: str, *branches: str) -> str:
    """Join branches that halve the image with the pool that does."""
    halved = b.max_pool(f"{name}.{pool}", x, kernel=3, stride=2)
    return b.concat(f"{name}.concat", *branches, halved)


def _double_seven(b: Builder, prefix: str, first: int, x: str, channels: tuple[int, int, int, int, int]) -> str:
    """Two 7x7 convolutions, each split in two that follow each other, behind one of 1x1."""
    kernels = ((1, 1), (7, 1), (1, 7), (7, 1), (1, 7))
    return _chain(b, prefix, first, x, *(_same(out, *kernel) for out, kernel in zip(channels, kernels, strict=True)))


def _average(b: Builder, name: str, x: str, *, count_pad: bool) -> str:
    return b.average_pool(name, x, kernel=3, stride=1, pad=1, count_pad=count_pad)


def _fork(b: Builder, prefix: str, join: str, x: str, channels: int) -> str:
    """A 3x3 convolution split in two that lie side by side."""
    row = _unit(b, f"{prefix}a", x, _same(channels, 1, 3))
    column = _unit(b, f"{prefix}b", x, _same(channels, 3, 1))
    return b.concat(join, row, column)


def _chain(b: Builder, prefix: str, first: int, x: str, *convs: _Conv) -> str:
    """One after the other, numbered from `first`."""
    for number, conv in enumerate(convs, first):
        x = _unit(b, f"{prefix}{number}", x, conv)
    return x


def _unit(b: Builder, name: str, x: str, conv: _Conv) -> str:
    x = b.conv(
        f"{name}.conv",
        x,
        channels=conv.channels,
        kernel=(conv.height, conv.width),
        stride=conv.stride,
        pad=(conv.height // 2, conv.width // 2) if conv.pads else 0,
        bias=False,
    )
    x = b.batch_norm(f"{name}.bn", x, epsilon=_EPSILON)
    return b.relu(f"{name}.relu", x)
