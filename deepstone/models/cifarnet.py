"""CifarNet: Caffe's cifar10_full, which is cuda-convnet's layers-18pct. Its first pool comes before its ReLU, and its
norms are over pixels within each channel.
"""

from __future__ import annotations

from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph


def cifarnet() -> Graph:
    b = Builder("cifarnet")
    x = b.input("data", (3, 32, 32))
    x = b.conv("conv1", x, channels=32, kernel=5, pad=2)
    x = b.max_pool("pool1", x, kernel=3, stride=2, ceil_mode=True)
    x = b.relu("relu1", x)
    x = b.lrn("norm1", x, size=3, alpha=5e-5, beta=0.75, within_channel=True)
    x = b.conv("conv2", x, channels=32, kernel=5, pad=2)
    x = b.relu("relu2", x)
    x = b.average_pool("pool2", x, kernel=3, stride=2, ceil_mode=True)
    x = b.lrn("norm2", x, size=3, alpha=5e-5, beta=0.75, within_channel=True)
    x = b.conv("conv3", x, channels=64, kernel=5, pad=2)
    x = b.relu("relu3", x)
    x = b.average_pool("pool3", x, kernel=3, stride=2, ceil_mode=True)
    x = b.flatten("flatten", x)
    x = b.dense("ip1", x, features=10)
    b.softmax_cross_entropy("loss", x)
    return b.build()
