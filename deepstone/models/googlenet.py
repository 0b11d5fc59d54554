"""GoogLeNet: Caffe's bvlc_googlenet without the two auxiliary heads. Every pool rounds up, as Caffe's do."""

from __future__ import annotations

from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph

# Channels of: 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection.
INCEPTIONS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


def googlenet() -> Graph:
    b = Builder("googlenet")
    x = b.input("data", (3, 224, 224))
    x = b.conv("conv1/7x7_s2", x, channels=64, kernel=7, stride=2, pad=3)
    x = b.relu("conv1/relu_7x7", x)
    x = b.max_pool("pool1/3x3_s2", x, kernel=3, stride=2, ceil_mode=True)
    x = b.lrn("pool1/norm1", x, size=5, alpha=1e-4, beta=0.75)
    x = _conv_relu(b, "conv2", "3x3_reduce", x, 64, 1)
    x = _conv_relu(b, "conv2", "3x3", x, 192, 3)
    x = b.lrn("conv2/norm2", x, size=5, alpha=1e-4, beta=0.75)
    x = b.max_pool("pool2/3x3_s2", x, kernel=3, stride=2, ceil_mode=True)
    for name, channels in INCEPTIONS.items():
        x = _inception(b, f"inception_{name}", x, channels)
        if name in ("3b", "4e"):
            x = b.max_pool(f"pool{name[0]}/3x3_s2", x, kernel=3, stride=2, ceil_mode=True)
    x = b.average_pool("pool5/7x7_s1", x, kernel=7, stride=1, ceil_mode=True)
    x = b.dropout("pool5/drop_7x7_s1", x, rate=0.4)
    x = b.flatten("flatten", x)
    return b.build_classifier("loss3/classifier", x, classes=1000)


def _inception(b: Builder, name: str, source: str, channels: tuple[int, int, int, int, int, int]) -> str:
    direct, reduce3, out3, reduce5, out5, projection = channels
    one = _conv_relu(b, name, "1x1", source, direct, 1)
    three = _conv_relu(b, name, "3x3_reduce", source, reduce3, 1)
    three = _conv_relu(b, name, "3x3", three, out3, 3)
    five = _conv_relu(b, name, "5x5_reduce", source, reduce5, 1)
    five = _conv_relu(b, name, "5x5", five, out5, 5)
    pool = b.max_pool(f"{name}/pool", source, kernel=3, stride=1, pad=1, ceil_mode=True)
    pool = _conv_relu(b, name, "pool_proj", pool, projection, 1)
    return b.concat(f"{name}/output", one, three, five, pool)


def _conv_relu(b: Builder, group: str, name: str, source: str, channels: int, kernel: int) -> str:
    x = b.conv(f"{group}/{name}", source, channels=channels, kernel=kernel, pad=kernel // 2)
    return b.relu(f"{group}/relu_{name}", x)
