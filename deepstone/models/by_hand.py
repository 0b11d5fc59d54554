"""A model of one convolution with sizes that the user gives."""

from __future__ import annotations

from deepstone.graph.builder import Builder
from deepstone.models.load import LoadedModel

BY_HAND = "by hand"  # the source of such a model
LAYER = "conv"


def convolution_by_hand(
    *,
    image: tuple[int, int, int],
    filters: int,
    kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
) -> LoadedModel:
    """Raises GraphError if the sizes do not fit. The layers after the convolution only complete the graph."""
    b = Builder(f"{_by(image)}-{filters}x{_by(kernel)}")
    x = b.input("data", image)
    x = b.conv(
        LAYER, x, channels=filters, kernel=kernel, stride=stride, pad=pad, dilation=dilation, groups=groups, bias=False
    )
    b.softmax_cross_entropy("loss", b.flatten("flatten", b.global_pool("pool", x)))
    graph = b.build()
    return LoadedModel(graph=graph, name=graph.name, source=BY_HAND, file_sha256="")


def _by(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))
