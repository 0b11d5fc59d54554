"""A network of one's own: a function that returns a graph. Measure it with

deepstone run examples/my_network.py:make batch=64
"""

from __future__ import annotations

from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph


def make() -> Graph:
    """Three blocks of two convolutions each, for images of 32 x 32 in ten classes."""
    b = Builder("my-network")
    x = b.input("data", (3, 32, 32))
    for number, channels in enumerate((32, 64, 128), start=1):
        for part in ("a", "b"):
            x = b.conv(f"conv{number}{part}", x, channels=channels, kernel=3, pad=1, bias=False)
            x = b.batch_norm(f"norm{number}{part}", x)
            x = b.relu(f"relu{number}{part}", x)
        x = b.max_pool(f"pool{number}", x, kernel=2, stride=2)
    x = b.flatten("flatten", b.global_pool("average", x))
    x = b.dense("logits", x, features=10)
    b.softmax_cross_entropy("loss", x)
    return b.build()
