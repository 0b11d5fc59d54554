"""Every operation with the attributes that ports get wrong, each in a branch of its own of one network."""

from __future__ import annotations

from deepstone.graph import ops
from deepstone.graph.graph import Graph, Layer

OPS: dict[str, ops.Op] = {
    "conv 1x1": ops.Conv(channels=5, kernel=(1, 1)),
    "conv 1x1 with stride": ops.Conv(channels=4, kernel=(1, 1), stride=(2, 3), bias=False),
    "conv even kernel": ops.Conv(channels=3, kernel=(2, 4), pad=(1, 0, 1, 2)),
    "conv one-sided pad": ops.Conv(channels=6, kernel=(3, 3), stride=(2, 2), pad=(0, 1, 0, 1)),
    "conv large pad": ops.Conv(channels=4, kernel=(3, 3), pad=(4, 3, 2, 5)),
    "conv stride beyond kernel": ops.Conv(channels=4, kernel=(2, 2), stride=(3, 4)),
    "conv dilated": ops.Conv(channels=4, kernel=(3, 2), dilation=(2, 3), pad=(2, 2, 1, 1), bias=False),
    "conv in groups": ops.Conv(channels=8, kernel=(3, 3), pad=(1, 1, 1, 1), groups=2),
    "conv in groups with stride": ops.Conv(
        channels=6, kernel=(3, 3), stride=(2, 2), groups=2, dilation=(1, 1), bias=False
    ),
    "conv by depth": ops.Conv(channels=4, kernel=(3, 3), pad=(1, 1, 1, 1), groups=4),
    "max pool": ops.MaxPool(kernel=(2, 2), stride=(2, 2)),
    "max pool overlapping": ops.MaxPool(kernel=(3, 3), stride=(2, 2), pad=(1, 1, 1, 1)),
    "max pool ceil": ops.MaxPool(kernel=(3, 2), stride=(2, 3), ceil_mode=True),
    "max pool ceil, one-sided pad": ops.MaxPool(kernel=(3, 3), stride=(2, 2), pad=(1, 0, 2, 0), ceil_mode=True),
    "max pool with gaps": ops.MaxPool(kernel=(2, 2), stride=(3, 3)),
    "average pool": ops.AveragePool(kernel=(3, 3), stride=(2, 2)),
    "average pool, pad counts": ops.AveragePool(kernel=(3, 3), stride=(1, 1), pad=(1, 1, 1, 1)),
    "average pool, pad does not count": ops.AveragePool(
        kernel=(3, 3), stride=(1, 1), pad=(1, 1, 1, 1), count_pad=False
    ),
    "average pool ceil": ops.AveragePool(kernel=(3, 3), stride=(2, 2), ceil_mode=True),
    "average pool ceil, pad counts": ops.AveragePool(kernel=(3, 2), stride=(2, 2), pad=(1, 0, 1, 0), ceil_mode=True),
    "average pool ceil, pad does not count": ops.AveragePool(
        kernel=(3, 2), stride=(2, 2), pad=(1, 0, 1, 0), ceil_mode=True, count_pad=False
    ),
    "global pool": ops.GlobalPool(),
    "lrn": ops.Lrn(size=5, alpha=0.3, beta=0.75, k=1.0),
    "lrn small": ops.Lrn(size=3, alpha=1.5, beta=0.5, k=2.0),
    "lrn wider than the channels": ops.Lrn(size=9, alpha=0.5, beta=1.25, k=1.5),
    "lrn within a channel": ops.Lrn(size=3, alpha=0.7, beta=0.75, within_channel=True),
    "lrn of one": ops.Lrn(size=1, alpha=0.2, beta=0.6),
    "batch norm": ops.BatchNorm(),
    "batch norm, large epsilon": ops.BatchNorm(epsilon=0.1, momentum=0.7),
    "relu": ops.Relu(),
}

# Of networks after 2017; legacy frameworks and some others do not have them.
LATER_OPS: dict[str, ops.Op] = {
    "relu6": ops.Clip(),
    "clip": ops.Clip(low=-0.5, high=0.75),  # limits that values of any precision meet
    "sigmoid": ops.Sigmoid(),
    "tanh": ops.Tanh(),
    "silu": ops.Silu(),
    "hard sigmoid": ops.HardSigmoid(),
    "hard swish": ops.HardSwish(),
}


def awkward(*, groups: bool = True) -> Graph:
    """Odd sizes, more columns than rows, so that whatever is turned or shifted shows. `groups`: of convolutions."""
    layers = [Layer(name="image", op=ops.Input(shape=(4, 9, 12)))]
    for name, op in OPS.items():
        if groups or not isinstance(op, ops.Conv) or op.groups == 1:
            layers.append(Layer(name=name, op=op, inputs=("image",)))
    joined = ("relu", "batch norm", "lrn")
    layers.append(Layer(name="add the same twice", op=ops.Add(), inputs=("relu", "lrn", "relu")))
    layers.append(Layer(name="concat", op=ops.Concat(), inputs=(*joined, "batch norm")))
    return _ended("awkward", layers)


def gated() -> Graph:
    """The later operations on odd sizes; values both within and beyond their limits, and on them."""
    layers = [
        Layer(name="image", op=ops.Input(shape=(4, 9, 12))),
        Layer(name="wide", op=ops.Conv(channels=4, kernel=(3, 3)), inputs=("image",)),
        Layer(name="wider", op=ops.Add(), inputs=("wide", "wide", "wide")),
    ]
    layers += [Layer(name=name, op=op, inputs=("wider",)) for name, op in LATER_OPS.items()]
    layers += [
        Layer(name="relu", op=ops.Relu(), inputs=("wider",)),
        Layer(name="first channels", op=ops.Slice(first=0, channels=1), inputs=("wider",)),
        Layer(name="other channels", op=ops.Slice(first=1, channels=3), inputs=("wider",)),
        Layer(name="middle", op=ops.Slice(first=1, channels=2), inputs=("silu",)),
        Layer(name="relu of a slice", op=ops.Relu(), inputs=("middle",)),
        Layer(name="six", op=ops.Concat(), inputs=("other channels", "relu of a slice", "first channels")),
        Layer(name="shuffle in twos", op=ops.Shuffle(groups=2), inputs=("six",)),
        Layer(name="shuffle in threes", op=ops.Shuffle(groups=3), inputs=("six",)),
        Layer(name="relu6 in place", op=ops.Clip(), inputs=("own",)),
        Layer(name="multiply", op=ops.Multiply(), inputs=("silu", "tanh")),
        Layer(name="square", op=ops.Multiply(), inputs=("wider", "wider")),
        Layer(name="squeeze", op=ops.GlobalPool(), inputs=("wider",)),
        Layer(name="gate", op=ops.Sigmoid(), inputs=("squeeze",)),
        Layer(name="multiply by a gate", op=ops.Multiply(), inputs=("hard swish", "gate")),
        Layer(name="gate first", op=ops.Multiply(), inputs=("gate", "wider")),
        Layer(name="flat", op=ops.Flatten(), inputs=("squeeze",)),
        Layer(name="flat gate", op=ops.HardSigmoid(), inputs=("flat",)),
        Layer(name="multiply by a flat gate", op=ops.Multiply(), inputs=("clip", "flat gate")),
        Layer(name="flat gate first", op=ops.Multiply(), inputs=("flat gate", "sigmoid")),
        Layer(name="flat image", op=ops.Flatten(), inputs=("relu6",)),
        Layer(name="flat activation", op=ops.Silu(), inputs=("flat image",)),
    ]
    layers.insert(-13, Layer(name="own", op=ops.Conv(channels=3, kernel=(1, 1)), inputs=("image",)))
    return _ended("gated", layers, flats=("flat activation",))


def _ended(name: str, layers: list[Layer], *, flats: tuple[str, ...] = ()) -> Graph:
    """With scores and a loss for every layer that no other reads; `flats` are flat already."""
    used = {name for layer in layers for name in layer.inputs}
    for layer in [layer for layer in layers if layer.name not in used]:
        flat, scores = f"{layer.name}/flat", f"{layer.name}/scores"
        bias = len(layers) % 2 == 0
        if layer.name in flats:
            flat = layer.name
        else:
            layers.append(Layer(name=flat, op=ops.Flatten(), inputs=(layer.name,)))
        layers += [
            Layer(name=scores, op=ops.Dense(features=3, bias=bias), inputs=(flat,)),
            Layer(name=f"{layer.name}/loss", op=ops.SoftmaxCrossEntropy(weight=0.5), inputs=(scores,)),
        ]
    return Graph(name, layers)
