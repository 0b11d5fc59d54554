"""One graph with every operation in every awkward form, for backends whose framework lives in another interpreter.

Each layer is run alone by a real worker, on inputs and an upstream gradient drawn here, and held against the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from frameworks import environment_of
from tiny_jobs import machine

from deepstone.graph import reference
from deepstone.graph.batch import seeded
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import AveragePool, Input, MaxPool, OpError, SoftmaxCrossEntropy
from deepstone.graph.weights import initial_parameters, synthetic_batch
from deepstone.models.load import LoadedModel
from deepstone.runner.conversation import Conversation
from deepstone.runner.job import Job
from deepstone.setups.axes import Value
from deepstone.setups.request import complete

IMAGE = (6, 13, 10)
CLASSES = 24
BATCH = 3

CONVOLUTIONS: tuple[dict[str, Any], ...] = (
    {"channels": 8, "kernel": 1},
    {"channels": 8, "kernel": 3, "pad": 1},
    {"channels": 8, "kernel": 5, "pad": 2, "bias": False},
    {"channels": 5, "kernel": 3, "stride": 2, "pad": 1},
    {"channels": 5, "kernel": (3, 2), "stride": (2, 1), "pad": (1, 0, 2, 1)},
    {"channels": 4, "kernel": 3, "stride": 3, "pad": (4, 3, 5, 4)},  # more padding than kernel
    {"channels": 4, "kernel": 2, "stride": 4},  # pixels that no window sees
    {"channels": 4, "kernel": 3, "pad": 2, "dilation": 2},
    {"channels": 4, "kernel": 3, "pad": (0, 2, 1, 0), "dilation": (1, 3), "bias": False},
    {"channels": 4, "kernel": 2, "stride": (2, 3), "pad": 1, "dilation": (3, 2)},
    {"channels": 6, "kernel": 3, "pad": 1, "groups": 2},
    {"channels": 9, "kernel": (2, 3), "stride": 2, "pad": (1, 0, 0, 1), "groups": 3, "bias": False},
    {"channels": 4, "kernel": 3, "pad": 2, "dilation": 2, "groups": 2},
    {"channels": 6, "kernel": 3, "pad": 1, "groups": 6},
    {"channels": 12, "kernel": 3, "stride": 2, "pad": (0, 1, 1, 1), "groups": 6, "bias": False},
    {"channels": 12, "kernel": 3, "stride": (1, 2), "groups": 6},
    {"channels": 6, "kernel": 2, "dilation": (2, 1), "groups": 6},
    {"channels": 6, "kernel": 2, "stride": 2, "dilation": 2, "groups": 6},
)
NORMS: tuple[dict[str, Any], ...] = (
    {"size": 5},
    {"size": 3, "alpha": 0.3, "beta": 0.6, "k": 1.5},
    {"size": 9, "alpha": 2.0, "beta": 1.0, "k": 0.5},  # wider than the image has channels
    {"size": 1, "alpha": 0.5},
    {"size": 3, "alpha": 0.3, "beta": 0.6, "k": 1.5, "within_channel": True},
    {"size": 5, "alpha": 1.0, "beta": 0.75, "k": 2.0, "within_channel": True},
)
COMMON_POOLS: tuple[dict[str, Any], ...] = (
    {"kernel": 2, "stride": 2},
    {"kernel": 3, "stride": 2},
    {"kernel": 3, "stride": 2, "ceil_mode": True},
    {"kernel": 3, "stride": 1, "pad": 1},
    {"kernel": 3, "stride": 2, "pad": 1},
    {"kernel": 3, "stride": 2, "pad": 1, "ceil_mode": True},
    {"kernel": 2, "stride": 3, "ceil_mode": True},
    {"kernel": (13, 10), "stride": 1},
)
DRAWN_POOLS = 8
# By precision, the numbers that a layer gives, and how near they must be to the reference.
TYPES = {"fp32": (np.float32, 1e-5), "fp64": (np.float64, 1e-12)}
_PLUMBING = "end of "  # begins the names of layers that are there only because every output must be used


@cache
def awkward() -> Graph:
    b = Builder("awkward")
    data = b.input("data", IMAGE)
    ends = [b.conv(f"conv {number}", data, **attributes) for number, attributes in enumerate(CONVOLUTIONS)]
    pools = [*COMMON_POOLS, *_drawn_pools()]
    ends += [b.max_pool(f"max/{number}", data, **attributes) for number, attributes in enumerate(pools)]
    for number, attributes in enumerate(pools):
        ends += [b.average_pool(f"mean.{number}", data, **attributes)]
        ends += [b.average_pool(f"mean.{number}.inside", data, **attributes, count_pad=False)]
    ends += [b.lrn(f"lrn{number}", data, **attributes) for number, attributes in enumerate(NORMS)]
    relu = b.relu("relu", data)
    ends += [b.batch_norm("norm", data), b.batch_norm("norm2", relu, epsilon=1e-3, momentum=0.3)]
    ends += [b.add("sum", data, relu), b.add("three", data, relu, data), b.add("twice", data, data)]
    ends += [b.concat("join", data, relu, "sum"), b.concat("doubled", data, data)]
    pooled = b.global_pool("global", data)
    narrow = b.max_pool("narrow", data, kernel=(12, 9), stride=1)  # 6 x 2 x 2, as many as there are classes
    b.softmax_cross_entropy("moved loss", b.flatten("moved", narrow), weight=0.5)
    first, second = b.flatten("first", narrow), b.flatten("second", narrow)
    b.softmax_cross_entropy("pair loss", b.dense("pair dense", b.add("flat sum", first, second), features=CLASSES))
    flat = b.dropout("flat drop", b.relu("flat relu", b.flatten("flat", relu)))
    b.softmax_cross_entropy("flat loss", b.dense("flat dense", flat, features=CLASSES, bias=False), weight=2.0)
    vector = b.relu("vector relu", b.dense("vector", b.flatten("global flat", pooled), features=7))
    b.softmax_cross_entropy("vector loss", b.dense("vector dense", vector, features=CLASSES))
    for end in ends:
        scores = b.dense(f"{_PLUMBING}{end} dense", b.flatten(f"{_PLUMBING}{end} flat", end), features=CLASSES)
        b.softmax_cross_entropy(f"{_PLUMBING}{end} loss", scores, weight=0.01)
    return b.build()


def _drawn_pools() -> list[dict[str, Any]]:
    """Pools of any kernel, stride and padding that fit the image."""
    random = seeded(0, "pools")
    pools: list[dict[str, Any]] = []
    while len(pools) < DRAWN_POOLS:
        kernel = tuple(int(side) for side in random.randint(1, 6, size=2))
        pad = tuple(int(random.randint(0, kernel[side // 2])) for side in range(4))
        stride = tuple(int(side) for side in random.randint(1, 5, size=2))
        pool = {"kernel": kernel, "stride": stride, "pad": pad, "ceil_mode": bool(random.randint(2))}
        try:
            MaxPool(**pool).output([IMAGE])
        except OpError:
            continue
        pools.append(pool)
    return pools


def graph_job(framework: str, graph: Graph, **axes: Value) -> Job:
    """A job for any graph, on one thread: on a busy machine two wait for each other."""
    return Job(
        model=LoadedModel(graph=graph, name=graph.name, source="zoo", file_sha256=""),
        request=complete({"framework": framework, "device": "cpu", "threads": 1, "batch": BATCH, **axes}),
        environment=environment_of(framework),
        machine=machine(),
        command=("deepstone", "run", graph.name),
    )


LAYERS = tuple(
    layer.name for layer in awkward().layers if not isinstance(layer.op, Input) and not layer.name.startswith(_PLUMBING)
)


@cache
def _given(name: str) -> tuple[dict[str, Any], Any]:
    """Inputs and upstream gradient of one layer. Pools get few different values, so that maxima are often shared."""
    graph = awkward()
    layer = graph.layer(name)
    random = seeded(1, name)
    inputs = {source: random.standard_normal((BATCH, *graph.shapes[source])) for source in dict.fromkeys(layer.inputs)}
    if isinstance(layer.op, MaxPool | AveragePool):
        inputs = {source: np.round(array) for source, array in inputs.items()}
    shape = () if isinstance(layer.op, SoftmaxCrossEntropy) else (BATCH, *graph.shapes[name])
    inputs = {source: array.astype(np.float32) for source, array in inputs.items()}
    return inputs, random.standard_normal(shape).astype(np.float32)


@cache
def expected(name: str, *, training: bool) -> dict[tuple[str, str], Any]:
    """What the reference gives for the layer, by the keys of `Conversation.layer`."""
    graph = awkward()
    layer = graph.layer(name)
    inputs, upstream = _given(name)
    parameters = initial_parameters(graph, 0).get(name, {})
    _, labels = synthetic_batch(graph, BATCH, 0)
    output = reference.forward(
        layer.op,
        [inputs[source] for source in layer.inputs],
        parameters,
        training=training,
        buffers=_buffers(graph, layer),
        labels=labels,
    )
    found: dict[tuple[str, str], Any] = {("output", ""): output.value}
    found |= {("buffer", buffer): array for buffer, array in output.buffers.items()}
    if training:
        gradients = output.backward(upstream.astype(np.float64))
        for source, gradient in zip(layer.inputs, gradients.inputs, strict=True):
            found["input", source] = found.get(("input", source), 0.0) + gradient
        found |= {("parameter", parameter): array for parameter, array in gradients.parameters.items()}
    return found


def _buffers(graph: Graph, layer: Layer) -> dict[str, Any]:
    return {name: np.full(shape, 1.0 if name == "running_var" else 0.0) for name, shape in graph.buffers(layer).items()}


def assert_layer_agrees(talk: Conversation, axes: Mapping[str, Value], name: str) -> None:
    """Every array the reference gives, and no other, is there, and is as near as its precision allows."""
    training, precision = axes["phase"] != "forward", str(axes.get("precision", "fp32"))
    dtype, tolerance = TYPES[precision]
    inputs, upstream = _given(name)
    given = talk.layer(name, inputs, upstream if training else None)
    wanted = expected(name, training=training)
    assert set(given) == set(wanted)
    for key, array in wanted.items():
        assert given[key].dtype == dtype, key
        assert given[key].shape == array.shape, key
        distance = float(np.linalg.norm(given[key] - array))
        assert distance <= tolerance * max(float(np.linalg.norm(array)), 1e-6), f"{key}: {distance}"


class LayerSuite:
    """Every layer in isolation. The fixture `way` gives a worker and the axes of its job."""

    @pytest.mark.parametrize("name", LAYERS)
    def test_each_agrees_with_the_reference(self, way: tuple[Conversation, dict[str, Value]], name: str) -> None:
        assert_layer_agrees(*way, name)
