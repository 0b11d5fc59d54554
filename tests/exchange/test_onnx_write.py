"""ONNX files that Deepstone writes: valid, the same network when read again, the same numbers in ONNX's own judge."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from depth import examples
from graph_examples import branching, random_graphs
from hypothesis import assume, given
from onnx.reference import ReferenceEvaluator
from onnx_kit import PATH

from deepstone.errors import UsageError
from deepstone.exchange import onnx_write
from deepstone.exchange.onnx_read import read
from deepstone.exchange.onnx_write import write
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Input, Module, SoftmaxCrossEntropy
from deepstone.graph.reference import forward_all
from deepstone.graph.weights import initial_parameters, synthetic_batch
from deepstone.models.zoo import ZOO


def normed_within_channels() -> Graph:
    b = Builder("normed")
    x = b.lrn("norm", b.input("data", (3, 7, 6)), size=3, alpha=0.5, beta=0.6, k=1.5, within_channel=True)
    x = b.average_pool("pool", x, kernel=3, stride=2, ceil_mode=True, count_pad=False)
    b.softmax_cross_entropy("loss", b.dense("scores", b.flatten("flat", x), features=4), weight=0.5)
    return b.build()


def gated() -> Graph:
    b = Builder("gated")
    data = b.input("data", (4, 7, 6))
    x = b.hard_swish("hard", b.silu("silu", b.clip("clip", data, low=-0.5, high=0.75)))
    x = b.multiply("product", x, b.tanh("tanh", data))
    own = b.multiply("no silu", x, b.sigmoid("sigmoid", x))  # the same, and yet two layers
    squeezed = b.global_pool("squeeze", own)
    x = b.multiply("gate first", b.hard_sigmoid("gate", squeezed), own)
    x = b.multiply("flat gate", x, b.dense("excite", b.flatten("flat squeeze", squeezed), features=4))
    return b.build_classifier("scores", b.flatten("flat", x), classes=3)


def shuffled() -> Graph:
    b = Builder("shuffled")
    data = b.input("data", (6, 5, 4))
    left, right = b.slice("left", data, first=0, channels=2), b.slice("right", data, first=2, channels=4)
    x = b.shuffle("threes", b.concat("join", b.tanh("tanh", right), left), groups=3)
    return b.build_classifier("scores", b.flatten("flat", b.shuffle("twos", x, groups=2)), classes=3)


@pytest.mark.parametrize("make", [branching, normed_within_channels, gated, shuffled])
def test_the_file_is_valid_and_computes_what_the_reference_does(make: Any) -> None:
    graph: Graph = make()
    content = write(graph, seed=3)
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    # The evaluator's LRN goes through as many channels as there are images, so there are as many as channels here.
    images, labels = synthetic_batch(graph, 6, seed=3)
    expected = forward_all(graph, initial_parameters(graph, 3), images, labels, training=False)
    evaluator = ReferenceEvaluator(content)
    outputs = dict(zip(evaluator.output_names, evaluator.run(None, {graph.input.name: images}), strict=True))
    assert set(outputs) == {loss.inputs[0] for loss in graph.losses}
    for name, found in outputs.items():
        np.testing.assert_allclose(found, expected[name].value, rtol=1e-4, atol=1e-5)


def _zeros(graph: Graph, seed: int) -> dict[str, dict[str, Any]]:
    del seed
    return {
        layer.name: {name: np.zeros(shape, np.float32) for name, shape in graph.parameters(layer).items()}
        for layer in graph.layers
    }


@pytest.mark.parametrize("name", ["cifarnet", "alexnet", "googlenet", "resnet50", "inception-v3", "resnet110"])
def test_models_of_the_zoo_come_back_as_they_were(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_write, "initial_parameters", _zeros)  # drawing sixty million numbers takes seconds
    graph = ZOO[name].make()
    again = read(PATH, write(graph))
    assert again.to_json() == graph.to_json()


def test_later_operations_come_back_as_they_were() -> None:
    for graph in (gated(), shuffled()):
        assert read(PATH, write(graph)).to_json() == graph.to_json()


@examples(60)
@given(graph=random_graphs())
def test_any_graph_comes_back_as_it_was(graph: Graph) -> None:
    content = b""
    try:
        content = write(graph)
    except UsageError:  # a pool that leaves out a window
        assume(False)
    onnx.checker.check_model(onnx.load_from_string(content))
    again = read(PATH, content)
    assert again.shapes == graph.shapes
    for layer, before in zip(again.layers, graph.layers, strict=True):
        assert (layer.name, layer.inputs) == (before.name, before.inputs)
        assert _close(layer, before)


def _close(layer: Layer, before: Layer) -> bool:
    """ONNX keeps 32 bits of a number."""
    ours, theirs = asdict(layer.op), asdict(before.op)
    return type(layer.op) is type(before.op) and all(
        math.isclose(value, theirs[name], rel_tol=1e-6, abs_tol=1e-6)
        if isinstance(value, float)
        else value == theirs[name]
        for name, value in ours.items()
    )


def test_a_module_of_ones_own_is_left_to_torch() -> None:
    module = Module(path="/net.py", function="make", sha256="0" * 64, features=3, weights=1)
    graph = Graph(
        "own",
        [
            Layer(name="data", op=Input(shape=(1, 2, 2))),
            Layer(name="module", op=module, inputs=("data",)),
            Layer(name="loss", op=SoftmaxCrossEntropy(), inputs=("module",)),
        ],
    )
    with pytest.raises(UsageError, match=r"torch\.onnx\.export"):
        write(graph)


def test_more_weights_than_a_file_can_hold() -> None:
    b = Builder("vast")
    x = b.dense("wide", b.flatten("flat", b.input("data", (1, 100, 100))), features=60_000)
    b.softmax_cross_entropy("loss", x)
    with pytest.raises(UsageError, match="2 GiB"):
        write(b.build())


def test_what_the_file_says_of_itself(tmp_path: Path) -> None:
    path = tmp_path / "branching.onnx"
    path.write_bytes(write(branching()))
    model = onnx.load(str(path))
    assert model.producer_name == "deepstone"
    assert [each.name for each in model.graph.output] == ["side_fc", "fc2"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
