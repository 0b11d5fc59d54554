"""Graphs for the tests of this folder: a small one with every op, and random ones."""

from __future__ import annotations

from hypothesis import strategies as st

from deepstone.graph import ops
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph, Layer


def branching(*, groups: int = 2) -> Graph:
    """Every op, branches that part and join, a layer added to itself, and two weighted losses."""
    b = Builder("branching")
    x = b.input("data", (4, 13, 11))
    x = b.conv("conv1", x, channels=6, kernel=(3, 2), stride=(2, 1), pad=(1, 0, 2, 1), groups=groups)
    x = b.lrn("norm1", b.relu("relu1", x), size=3, alpha=0.5, beta=0.75, k=2.0)
    x = b.max_pool("pool1", x, kernel=3, stride=2, pad=(1, 0), ceil_mode=True)
    left = b.conv("left", x, channels=6, kernel=3, pad=2, dilation=2, bias=False)
    left = b.relu("left_relu", b.batch_norm("left_bn", left, epsilon=1e-3, momentum=0.3))
    right = b.average_pool("right", x, kernel=3, stride=1, pad=1, count_pad=False)
    x = b.relu("sum_relu", b.add("sum", left, right, x))
    side = b.dense("side_fc", b.flatten("side_flat", b.average_pool("side_pool", x, kernel=2, stride=2)), features=5)
    b.softmax_cross_entropy("side_loss", side, weight=0.3)
    x = b.concat("join", x, b.add("twice", left, left), right)
    x = b.dropout("drop", b.flatten("flat", b.global_pool("gap", x)), rate=0.25)
    x = b.dense("fc1", x, features=7, bias=False)
    b.softmax_cross_entropy("loss", b.dense("fc2", b.relu("fc1_relu", x), features=5))
    return b.build()


def pairs(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high))


@st.composite
def convs(draw: st.DrawFn) -> ops.Conv:
    groups = draw(st.integers(1, 3))
    return ops.Conv(
        channels=groups * draw(st.integers(1, 2)),
        kernel=draw(pairs(1, 3)),
        stride=draw(pairs(1, 3)),
        pad=draw(st.tuples(*[st.integers(0, 3)] * 4)),
        dilation=draw(pairs(1, 2)),
        groups=groups,
        bias=draw(st.booleans()),
    )


@st.composite
def pool_attributes(draw: st.DrawFn) -> dict[str, object]:
    kernel = draw(pairs(1, 4))
    rows, columns = st.integers(0, kernel[0] - 1), st.integers(0, kernel[1] - 1)
    return {
        "kernel": kernel,
        "stride": draw(pairs(1, 4)),
        "pad": draw(st.tuples(rows, rows, columns, columns)),
        "ceil_mode": draw(st.booleans()),
    }


max_pools = st.builds(lambda attributes: ops.MaxPool(**attributes), pool_attributes())
average_pools = st.builds(
    lambda attributes, count_pad: ops.AveragePool(**attributes, count_pad=count_pad), pool_attributes(), st.booleans()
)
batch_norms = st.builds(ops.BatchNorm, epsilon=st.floats(1e-5, 1.0), momentum=st.floats(0.0, 1.0))
lrns = st.builds(
    ops.Lrn,
    size=st.sampled_from([1, 3, 5, 7]),
    alpha=st.floats(0.0, 2.0),
    beta=st.floats(0.0, 2.0),
    k=st.floats(0.5, 2.0),
    within_channel=st.booleans(),
)
dropouts = st.builds(ops.Dropout, rate=st.floats(0.0, 0.9))
image_shapes = st.tuples(st.integers(1, 6), st.integers(1, 8), st.integers(1, 8))


@st.composite
def random_graphs(draw: st.DrawFn) -> Graph:
    """Images through random layers that fit; every branch left open ends in a dense layer and a weighted loss."""
    data = ops.Input(shape=draw(image_shapes))
    layers = [Layer(name="data", op=data)]
    shapes: dict[str, ops.Shape] = {"data": data.shape}
    steps = st.one_of(
        convs(),
        max_pools,
        average_pools,
        batch_norms,
        lrns,
        dropouts,
        st.sampled_from(
            [
                ops.GlobalPool(),
                ops.Relu(),
                ops.Silu(),
                ops.Clip(),
                ops.Add(),
                ops.Multiply(),
                ops.Concat(),
                ops.Slice(first=1, channels=1),
                ops.Shuffle(groups=2),
            ]
        ),
    )
    for op in draw(st.lists(steps, max_size=8)):
        sources = draw(st.lists(st.sampled_from(list(shapes)), min_size=op.arity[0], max_size=op.arity[1] or 3))
        _append_if_it_fits(layers, shapes, op, tuple(sources))
    classes = draw(st.integers(1, 4))
    used = {name for layer in layers for name in layer.inputs}
    for name in [name for name in shapes if name not in used]:
        weight = draw(st.floats(0.1, 2.0))
        layers += [
            Layer(name=f"{name} flat", op=ops.Flatten(), inputs=(name,)),
            Layer(name=f"{name} scores", op=ops.Dense(features=classes), inputs=(f"{name} flat",)),
            Layer(name=f"{name} loss", op=ops.SoftmaxCrossEntropy(weight=weight), inputs=(f"{name} scores",)),
        ]
    return Graph("random", layers)


def _append_if_it_fits(layers: list[Layer], shapes: dict[str, ops.Shape], op: ops.Op, sources: tuple[str, ...]) -> None:
    name = f"{op.kind}{len(layers)}"
    try:
        shapes[name] = op.output([shapes[source] for source in sources])
    except ops.OpError:
        return
    layers.append(Layer(name=name, op=op, inputs=sources))


def normed_chain(length: int) -> Graph:
    """So many convolutions, each with batch norm: places to cut it, with batch norm in every segment."""
    b = Builder("chain")
    x = b.input("data", (4, 9, 9))
    for number in range(length):
        x = b.conv(f"conv{number}", x, channels=6, kernel=3, pad=1, bias=False)
        x = b.relu(f"relu{number}", b.batch_norm(f"norm{number}", x))
    b.softmax_cross_entropy("loss", b.dense("dense", b.flatten("flat", x), features=5))
    return b.build()
