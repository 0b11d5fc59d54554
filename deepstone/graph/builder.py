"""Builds a graph layer by layer; each call returns the new layer's name for the next call. Models use it."""

from __future__ import annotations

from typing import TypeAlias

from deepstone.errors import GraphError
from deepstone.graph.graph import Graph, Layer, make_op
from deepstone.graph.ops import OpError

Sides: TypeAlias = int | tuple[int, int]
Padding: TypeAlias = int | tuple[int, int] | tuple[int, int, int, int]


class Builder:
    """`x = b.conv("conv1", x, channels=64, kernel=3, pad=1)`; sizes may be one number or one per side."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._layers: list[Layer] = []

    def build(self) -> Graph:
        return Graph(self._name, self._layers)

    def build_classifier(self, name: str, source: str, *, classes: int) -> Graph:
        """Add a dense layer of that name and the loss, and build the graph."""
        self.softmax_cross_entropy("loss", self.dense(name, source, features=classes))
        return self.build()

    def input(self, name: str, shape: tuple[int, int, int]) -> str:
        return self._add("input", name, (), shape=shape)

    def conv(
        self,
        name: str,
        source: str,
        *,
        channels: int,
        kernel: Sides,
        stride: Sides = 1,
        pad: Padding = 0,
        dilation: Sides = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> str:
        sizes = {"kernel": kernel, "stride": stride, "pad": _pad(pad), "dilation": dilation}
        return self._add("conv", name, (source,), channels=channels, groups=groups, bias=bias, **sizes)

    def max_pool(
        self, name: str, source: str, *, kernel: Sides, stride: Sides, pad: Padding = 0, ceil_mode: bool = False
    ) -> str:
        return self._add("max_pool", name, (source,), kernel=kernel, stride=stride, pad=_pad(pad), ceil_mode=ceil_mode)

    def average_pool(
        self,
        name: str,
        source: str,
        *,
        kernel: Sides,
        stride: Sides,
        pad: Padding = 0,
        ceil_mode: bool = False,
        count_pad: bool = True,
    ) -> str:
        window = {"kernel": kernel, "stride": stride, "pad": _pad(pad)}
        return self._add("average_pool", name, (source,), ceil_mode=ceil_mode, count_pad=count_pad, **window)

    def global_pool(self, name: str, source: str) -> str:
        return self._add("global_pool", name, (source,))

    def dense(self, name: str, source: str, *, features: int, bias: bool = True) -> str:
        return self._add("dense", name, (source,), features=features, bias=bias)

    def relu(self, name: str, source: str) -> str:
        return self._add("relu", name, (source,))

    def clip(self, name: str, source: str, *, low: float = 0.0, high: float = 6.0) -> str:
        return self._add("clip", name, (source,), low=low, high=high)

    def sigmoid(self, name: str, source: str) -> str:
        return self._add("sigmoid", name, (source,))

    def tanh(self, name: str, source: str) -> str:
        return self._add("tanh", name, (source,))

    def silu(self, name: str, source: str) -> str:
        return self._add("silu", name, (source,))

    def hard_sigmoid(self, name: str, source: str) -> str:
        return self._add("hard_sigmoid", name, (source,))

    def hard_swish(self, name: str, source: str) -> str:
        return self._add("hard_swish", name, (source,))

    def batch_norm(self, name: str, source: str, *, epsilon: float = 1e-5, momentum: float = 0.1) -> str:
        return self._add("batch_norm", name, (source,), epsilon=epsilon, momentum=momentum)

    def lrn(
        self,
        name: str,
        source: str,
        *,
        size: int = 5,
        alpha: float = 1e-4,
        beta: float = 0.75,
        k: float = 1.0,
        within_channel: bool = False,
    ) -> str:
        return self._add("lrn", name, (source,), size=size, alpha=alpha, beta=beta, k=k, within_channel=within_channel)

    def dropout(self, name: str, source: str, *, rate: float = 0.5) -> str:
        return self._add("dropout", name, (source,), rate=rate)

    def add(self, name: str, *sources: str) -> str:
        return self._add("add", name, sources)

    def multiply(self, name: str, first: str, second: str) -> str:
        return self._add("multiply", name, (first, second))

    def concat(self, name: str, *sources: str) -> str:
        return self._add("concat", name, sources)

    def slice(self, name: str, source: str, *, first: int, channels: int) -> str:
        return self._add("slice", name, (source,), first=first, channels=channels)

    def shuffle(self, name: str, source: str, *, groups: int) -> str:
        return self._add("shuffle", name, (source,), groups=groups)

    def flatten(self, name: str, source: str) -> str:
        return self._add("flatten", name, (source,))

    def softmax_cross_entropy(self, name: str, source: str, *, weight: float = 1.0) -> str:
        return self._add("softmax_cross_entropy", name, (source,), weight=weight)

    def _add(self, kind: str, name: str, inputs: tuple[str, ...], **attributes: object) -> str:
        try:
            op = make_op(kind, attributes)
        except OpError as error:
            raise GraphError(f"layer {name!r}: {error}") from None
        self._layers.append(Layer(name=name, op=op, inputs=inputs))
        return name


def _pad(pad: Padding) -> Padding:
    """(vertical, horizontal) means the same on opposite sides."""
    if isinstance(pad, tuple) and len(pad) == 2:
        return (pad[0], pad[0], pad[1], pad[1])
    return pad
