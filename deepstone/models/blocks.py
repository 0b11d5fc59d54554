"""The few layers in a row that several families share, under the names Caffe's nets made usual."""

from __future__ import annotations

from deepstone.graph.builder import Builder


def conv_relu(
    b: Builder,
    number: str,
    source: str,
    channels: int,
    kernel: int,
    *,
    stride: int = 1,
    pad: int = 0,
    groups: int = 1,
) -> str:
    """`conv<number>` and `relu<number>`."""
    x = b.conv(f"conv{number}", source, channels=channels, kernel=kernel, stride=stride, pad=pad, groups=groups)
    return b.relu(f"relu{number}", x)


def dense_head(b: Builder, source: str, *, hidden: tuple[int, int], classes: int) -> str:
    """Two dense layers with ReLU and dropout, `fc6` and `fc7`, then `fc8` and the loss: how nets ended until 2014."""
    x = b.flatten("flatten", source)
    for number, features in enumerate(hidden, 6):
        x = b.dense(f"fc{number}", x, features=features)
        x = b.relu(f"relu{number}", x)
        x = b.dropout(f"drop{number}", x)
    x = b.dense("fc8", x, features=classes)
    return b.softmax_cross_entropy("loss", x)
