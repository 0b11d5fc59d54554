"""Graphs: what is refused and how the message names it; the JSON form; what is derived."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import pytest
from depth import examples
from factory import put
from graph_examples import branching, random_graphs
from hypothesis import given
from hypothesis import strategies as st

from deepstone.errors import GraphError
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import OPS, Conv, Dense, Dropout, Flatten, Input, Op, Relu, SoftmaxCrossEntropy

DATA = Layer(name="data", op=Input(shape=(3, 8, 8)))
FLAT = Layer(name="flat", op=Flatten(), inputs=("data",))
FC = Layer(name="fc", op=Dense(features=10), inputs=("flat",))
LOSS = Layer(name="loss", op=SoftmaxCrossEntropy(), inputs=("fc",))


def layer(name: str, op: Op, *inputs: str) -> Layer:
    return Layer(name=name, op=op, inputs=inputs)


def small() -> Graph:
    return Graph("small", [DATA, FLAT, FC, LOSS])


def same(a: Graph, b: Graph) -> bool:
    return a.name == b.name and a.layers == b.layers and a.shapes == b.shapes and a.sha == b.sha


@pytest.mark.parametrize(
    ("layers", "says"),
    [
        ([DATA, FLAT, FC, FC, LOSS], "layer 'fc': the name is used twice"),
        ([DATA, layer("", Flatten(), "data"), LOSS], "layer '': a layer's name must be one line of text"),
        ([DATA, layer("a\nb", Flatten(), "data"), LOSS], r"layer 'a\nb': a layer's name must be one line of text"),
        ([DATA, layer("x" * 201, Flatten(), "data"), LOSS], f"layer '{'x' * 40}…': its name has 201 characters"),
        ([DATA, layer("\ud800", Flatten(), "data"), LOSS], r"layer '\ud800': a layer's name must be one line of text"),
        ([DATA, layer("flat", Flatten(), "dat"), FC, LOSS], "layer 'flat': its input 'dat' is no layer; did you mean"),
        ([DATA, FC, FLAT, LOSS], "layer 'fc': its input 'flat' comes after it; a layer must follow its inputs"),
        ([DATA, layer("r", Relu(), "r")], "layer 'r': its input 'r' comes after it"),
        ([DATA, layer("flat", Flatten()), FC, LOSS], "layer 'flat': flatten takes 1 inputs, not 0"),
        ([DATA, layer("in", Input(shape=(3, 8, 8)), "data")], "layer 'in': input takes 0 inputs, not 1"),
        ([DATA, FLAT, FC, LOSS, layer("r", Relu(), "loss")], "layer 'r': its input 'loss' is a loss"),
        ([DATA, layer("c", Conv(channels=4, kernel=(9, 1)), "data")], "layer 'c': height 8 with padding is smaller"),
        ([DATA, layer("d", Dropout(rate=2.0), "data")], "layer 'd': rate must be at least 0 and below 1, not 2.0"),
        ([DATA, FLAT, FC, LOSS, layer("r", Relu(), "data")], "layer 'r': nothing uses its output"),
        ([DATA, FLAT, FC], "graph 'bad' has no loss; end it with a softmax_cross_entropy layer"),
        ([], "graph 'bad' has 0 input layers; it needs exactly one"),
        (
            [DATA, FLAT, FC, LOSS, layer("data2", Input(shape=(3, 8, 8)))],
            "graph 'bad' has 2 input layers; it needs exactly one",
        ),
        (
            [DATA, FLAT, FC, LOSS, layer("loss2", SoftmaxCrossEntropy(), "flat")],
            "graph 'bad': its losses differ in the number of classes: {'loss': 10, 'loss2': 192}",
        ),
    ],
)
def test_malformed_graph(layers, says):
    with pytest.raises(GraphError) as caught:
        Graph("bad", layers)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "two\nlines"])
def test_graph_name(name):
    with pytest.raises(GraphError, match="a graph's name must be one line of text"):
        Graph(name, small().layers)
    with pytest.raises(GraphError, match=r"its name has 3,000 characters; give it one of at most 200"):
        Graph("n" * 3000, [DATA, LOSS])


def changed(path: list[str | int], value: object) -> object:
    """The JSON of a small graph with one thing put at `path`."""
    return put(small().to_json(), path, value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([], "a graph must be a JSON object with name and layers"),
        ({}, "graph schema None is not 1"),
        (changed(["schema"], 2), "graph schema 2 is not 1"),
        (changed(["name"], 3), "a graph must have a name (text) and layers (a list)"),
        (changed(["layers"], {}), "a graph must have a name (text) and layers (a list)"),
        (changed(["layers", 1], "flat"), "layer number 2: must be a JSON object"),
        (changed(["layers", 1, "name"], 7), "layer number 2: needs a name"),
        (changed(["layers", 1, "op"], None), "layer 'flat': needs an op"),
        (changed(["layers", 1, "op"], "flaten"), "layer 'flat': unknown op 'flaten'; did you mean flatten?"),
        (changed(["layers", 1, "inputs"], "data"), "layer 'flat': inputs must be a list of layer names"),
        (changed(["layers", 1, "inputs"], [1]), "layer 'flat': inputs must be a list of layer names"),
        (changed(["layers", 1, "axis"], 1), "layer 'flat': flatten has no attribute 'axis'; it has none"),
        (changed(["layers", 2, "feature"], 1), "layer 'fc': dense has no attribute 'feature'; did you mean features?"),
        (changed(["layers", 2, "features"], "10"), "layer 'fc': features must be a whole number, not '10'"),
        (changed(["layers", 2, "features"], True), "layer 'fc': features must be a whole number, not True"),
        (changed(["layers", 2, "features"], 10.0), "layer 'fc': features must be a whole number, not 10.0"),
        (changed(["layers", 2, "bias"], 1), "layer 'fc': bias must be true or false, not 1"),
        (changed(["layers", 3, "weight"], "1"), "layer 'loss': weight must be a finite number, not '1'"),
        (changed(["layers", 3, "weight"], False), "layer 'loss': weight must be a finite number, not False"),
        (changed(["layers", 3, "weight"], float("nan")), "layer 'loss': weight must be a finite number, not nan"),
        (changed(["layers", 3, "weight"], float("inf")), "layer 'loss': weight must be a finite number, not inf"),
        (changed(["layers", 3, "weight"], 10**400), "layer 'loss': weight must be a finite number, not 1000"),
        (changed(["layers", 0, "shape"], "3,8,8"), "layer 'data': shape must be a list of whole numbers, not '3,8,8'"),
        (changed(["layers", 0, "shape"], [3, 8, 8.0]), "layer 'data': shape must be a list of whole numbers"),
        (changed(["layers", 0, "shape"], [3, 8]), "layer 'data': shape must be (channels, height, width), not [3, 8]"),
        (
            changed(["layers", 1], {"name": "c", "op": "conv", "inputs": ["data"], "channels": 4}),
            "layer 'c': conv needs the attribute 'kernel'",
        ),
        (
            changed(["layers", 1], {"name": "c", "op": "conv", "inputs": ["data"], "channels": 4, "kernel": [3]}),
            "layer 'c': kernel must be 2 whole numbers, not [3]",
        ),
        (
            changed(
                ["layers", 1],
                {"name": "c", "op": "conv", "inputs": ["data"], "channels": 4, "kernel": 3, "pad": [1, 1]},
            ),
            "layer 'c': pad must be 4 whole numbers, not [1, 1]",
        ),
    ],
)
def test_malformed_json(data, says):
    with pytest.raises(GraphError) as caught:
        Graph.from_json(data)
    assert says in str(caught.value)


def test_builder_names_the_layer():
    b = Builder("bad")
    x = b.input("data", (3, 8, 8))
    with pytest.raises(GraphError, match="layer 'c': kernel must be 2 whole numbers"):
        b.conv("c", x, channels=4, kernel=(1, 2, 3))  # pyright: ignore


def test_one_number_stands_for_all_sides():
    described = small().to_json()
    described["layers"].insert(
        1, {"name": "c", "op": "conv", "inputs": ["data"], "channels": 4, "kernel": 3, "stride": 2, "pad": 1}
    )
    described["layers"][2]["inputs"] = ["c"]
    conv = Graph.from_json(described).layer("c").op
    assert conv == Conv(channels=4, kernel=(3, 3), stride=(2, 2), pad=(1, 1, 1, 1))


def test_builder_pads_opposite_sides_alike():
    b = Builder("pads")
    b.conv("c", b.input("data", (3, 8, 8)), channels=4, kernel=5, pad=(1, 2))
    assert b._layers[1].op == Conv(channels=4, kernel=(5, 5), pad=(1, 1, 2, 2))


def test_branching_round_trip():
    graph = branching()
    assert same(graph, Graph.from_json(json.loads(json.dumps(graph.to_json()))))
    kinds = {layer.op.kind for layer in graph.layers}
    assert len(kinds) == 14, "the example graph should use every op"


@examples(60)
@given(graph=random_graphs())
def test_random_round_trip(graph):
    text = json.dumps(graph.to_json(), allow_nan=False)
    assert same(graph, Graph.from_json(json.loads(text)))


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 5),
    st.just(10**30),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(-1, 3), max_size=4),
    st.dictionaries(st.text(max_size=2), st.none(), max_size=1),
)


@examples(300)
@given(data=st.data(), junk=JUNK)
def test_junk_anywhere_is_a_graph_error_or_a_graph(data, junk):
    described = copy.deepcopy(branching().to_json())
    place = data.draw(st.sampled_from([described, *described["layers"]]))
    place[data.draw(st.sampled_from([*place, "other"]))] = junk
    try:
        graph = Graph.from_json(described)
    except GraphError:
        return
    assert same(graph, Graph.from_json(json.loads(json.dumps(graph.to_json()))))


def test_example_in_the_docs():
    page = (Path(__file__).parents[2] / "docs" / "graph.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```json\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    graph = Graph.from_json(json.loads(example))
    assert graph.shapes["conv1"] == (16, 16, 16)
    assert graph.shapes["pool1"] == (16, 8, 8)
    for kind in OPS:
        assert f"\n### `{kind}`" in page, f"docs/graph.md does not say what {kind} computes"


def test_sha_is_of_what_is_computed():
    graph = small()
    assert Graph("other name", graph.layers).sha == graph.sha
    other = Graph("small", [DATA, FLAT, layer("fc", Dense(features=11), "flat"), LOSS])
    assert other.sha != graph.sha


def test_worker_json_spells_out_every_shape():
    entries = small().to_worker_json()["layers"]
    assert [entry["output"] for entry in entries] == [[3, 8, 8], [192], [10], []]
    assert entries[2]["parameters"] == {"weight": [10, 192], "bias": [10]}
    assert json.loads(json.dumps(entries)) == entries


def test_derived():
    graph = branching()
    assert graph.input.name == "data"
    assert [loss.name for loss in graph.losses] == ["side_loss", "loss"]
    assert graph.classes == 5
    assert len(graph) == len(graph.layers)
    assert [taker.name for taker in graph.consumers["left_relu"]] == ["sum", "twice", "twice"]
    assert graph.after_parameters == {layer.name for layer in graph.layers} - {"data", "conv1"}
    assert graph.buffers(graph.layer("left_bn")) == {"running_mean": (6,), "running_var": (6,)}
