"""OverFeat's fast model, as in table 1 of the paper and in convnet-benchmarks, which zanella2018 ran.

Dropout is the paper's ("on fully connected layers 6 and 7"); convnet-benchmarks leaves it out.
"""

from __future__ import annotations

from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.models.blocks import conv_relu, dense_head


def overfeat() -> Graph:
    b = Builder("overfeat")
    x = b.input("data", (3, 231, 231))
    x = conv_relu(b, "1", x, 96, 11, stride=4)
    x = b.max_pool("pool1", x, kernel=2, stride=2)
    x = conv_relu(b, "2", x, 256, 5)
    x = b.max_pool("pool2", x, kernel=2, stride=2)
    x = conv_relu(b, "3", x, 512, 3, pad=1)
    x = conv_relu(b, "4", x, 1024, 3, pad=1)
    x = conv_relu(b, "5", x, 1024, 3, pad=1)
    x = b.max_pool("pool5", x, kernel=2, stride=2)
    dense_head(b, x, hidden=(3072, 4096), classes=1000)
    return b.build()
