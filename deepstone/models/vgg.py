"""VGG 11, 16 and 19: configurations A, D and E of the paper, layers named as in the authors' Caffe files."""

from __future__ import annotations

from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.models.blocks import conv_relu, dense_head

_CHANNELS = (64, 128, 256, 512, 512)
_CONVS = {
    11: (1, 1, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}


def vgg(depth: int) -> Graph:
    b = Builder(f"vgg{depth}")
    x = b.input("data", (3, 224, 224))
    for stage, (channels, convs) in enumerate(zip(_CHANNELS, _CONVS[depth], strict=True), 1):
        for position in range(1, convs + 1):
            x = conv_relu(b, f"{stage}_{position}", x, channels, 3, pad=1)
        x = b.max_pool(f"pool{stage}", x, kernel=2, stride=2)
    dense_head(b, x, hidden=(4096, 4096), classes=1000)
    return b.build()
