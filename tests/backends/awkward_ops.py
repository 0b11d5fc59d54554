"""Every operation with the attributes that ports get wrong, each in a branch of its own of one network."""

from __future__ import annotations

from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import (
    Add,
    AveragePool,
    BatchNorm,
    Concat,
    Conv,
    Dense,
    Flatten,
    GlobalPool,
    Input,
    Lrn,
    MaxPool,
    Op,
    Relu,
    SoftmaxCrossEntropy,
)

OPS: dict[str, Op] = {
    "conv 1x1": Conv(channels=5, kernel=(1, 1)),
    "conv 1x1 with stride": Conv(channels=4, kernel=(1, 1), stride=(2, 3), bias=False),
    "conv even kernel": Conv(channels=3, kernel=(2, 4), pad=(1, 0, 1, 2)),
    "conv one-sided pad": Conv(channels=6, kernel=(3, 3), stride=(2, 2), pad=(0, 1, 0, 1)),
    "conv large pad": Conv(channels=4, kernel=(3, 3), pad=(4, 3, 2, 5)),
    "conv stride beyond kernel": Conv(channels=4, kernel=(2, 2), stride=(3, 4)),
    "conv dilated": Conv(channels=4, kernel=(3, 2), dilation=(2, 3), pad=(2, 2, 1, 1), bias=False),
    "conv in groups": Conv(channels=8, kernel=(3, 3), pad=(1, 1, 1, 1), groups=2),
    "conv in groups with stride": Conv(channels=6, kernel=(3, 3), stride=(2, 2), groups=2, dilation=(1, 1), bias=False),
    "conv by depth": Conv(channels=4, kernel=(3, 3), pad=(1, 1, 1, 1), groups=4),
    "max pool": MaxPool(kernel=(2, 2), stride=(2, 2)),
    "max pool overlapping": MaxPool(kernel=(3, 3), stride=(2, 2), pad=(1, 1, 1, 1)),
    "max pool ceil": MaxPool(kernel=(3, 2), stride=(2, 3), ceil_mode=True),
    "max pool ceil, one-sided pad": MaxPool(kernel=(3, 3), stride=(2, 2), pad=(1, 0, 2, 0), ceil_mode=True),
    "max pool with gaps": MaxPool(kernel=(2, 2), stride=(3, 3)),
    "average pool": AveragePool(kernel=(3, 3), stride=(2, 2)),
    "average pool, pad counts": AveragePool(kernel=(3, 3), stride=(1, 1), pad=(1, 1, 1, 1)),
    "average pool, pad does not count": AveragePool(kernel=(3, 3), stride=(1, 1), pad=(1, 1, 1, 1), count_pad=False),
    "average pool ceil": AveragePool(kernel=(3, 3), stride=(2, 2), ceil_mode=True),
    "average pool ceil, pad counts": AveragePool(kernel=(3, 2), stride=(2, 2), pad=(1, 0, 1, 0), ceil_mode=True),
    "average pool ceil, pad does not count": AveragePool(
        kernel=(3, 2), stride=(2, 2), pad=(1, 0, 1, 0), ceil_mode=True, count_pad=False
    ),
    "global pool": GlobalPool(),
    "lrn": Lrn(size=5, alpha=0.3, beta=0.75, k=1.0),
    "lrn small": Lrn(size=3, alpha=1.5, beta=0.5, k=2.0),
    "lrn wider than the channels": Lrn(size=9, alpha=0.5, beta=1.25, k=1.5),
    "lrn within a channel": Lrn(size=3, alpha=0.7, beta=0.75, within_channel=True),
    "lrn of one": Lrn(size=1, alpha=0.2, beta=0.6),
    "batch norm": BatchNorm(),
    "batch norm, large epsilon": BatchNorm(epsilon=0.1, momentum=0.7),
    "relu": Relu(),
}


def awkward() -> Graph:
    """Odd sizes, more columns than rows, so that whatever is turned or shifted shows."""
    layers = [Layer(name="image", op=Input(shape=(4, 9, 12)))]
    for name, op in OPS.items():
        layers.append(Layer(name=name, op=op, inputs=("image",)))
    joined = ("relu", "batch norm", "lrn")
    layers.append(Layer(name="add the same twice", op=Add(), inputs=("relu", "lrn", "relu")))
    layers.append(Layer(name="concat", op=Concat(), inputs=(*joined, "batch norm")))
    used = {name for layer in layers for name in layer.inputs}
    for layer in [layer for layer in layers if layer.name not in used]:
        flat, scores = f"{layer.name}/flat", f"{layer.name}/scores"
        layers += [
            Layer(name=flat, op=Flatten(), inputs=(layer.name,)),
            Layer(name=scores, op=Dense(features=3, bias=len(layers) % 2 == 0), inputs=(flat,)),
            Layer(name=f"{layer.name}/loss", op=SoftmaxCrossEntropy(weight=0.5), inputs=(scores,)),
        ]
    return Graph("awkward", layers)
