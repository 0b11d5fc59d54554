"""A graph of named layers, checked when it is made: names, inputs, order, shapes."""

from __future__ import annotations

import hashlib
import json
import sys
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache, cached_property, lru_cache
from typing import Any, cast

from deepstone.errors import GraphError, nearest
from deepstone.graph.ops import OPS, Input, Module, ModuleLoss, Op, OpError, Shape, SoftmaxCrossEntropy, Tensors

GRAPH_SCHEMA = 1
LONGEST_NAME = 200  # of a graph or a layer: names become keys of results, columns of tables, labels of figures


_INPUTS = (Input, Tensors)
_LOSSES = (SoftmaxCrossEntropy, ModuleLoss)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One named node: its operation and its inputs."""

    name: str
    op: Op
    inputs: tuple[str, ...] = ()


class Graph:
    """Layers in topological order. Immutable and always well formed."""

    def __init__(self, name: str, layers: Iterable[Layer]) -> None:
        self.name = name
        self.layers = tuple(layers)
        self.shapes: Mapping[str, Shape] = _infer(name, self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self.layers)} layers)"

    def layer(self, name: str) -> Layer:
        return self._by_name[name]

    def input_shapes(self, layer: Layer) -> list[Shape]:
        return [self.shapes[name] for name in layer.inputs]

    def parameters(self, layer: Layer) -> dict[str, Shape]:
        return layer.op.parameters(self.input_shapes(layer))

    def buffers(self, layer: Layer) -> dict[str, Shape]:
        return layer.op.buffers(self.input_shapes(layer))

    @cached_property
    def _by_name(self) -> dict[str, Layer]:
        return {layer.name: layer for layer in self.layers}

    @cached_property
    def input(self) -> Layer:
        return next(layer for layer in self.layers if isinstance(layer.op, _INPUTS))

    @cached_property
    def losses(self) -> tuple[Layer, ...]:
        return tuple(layer for layer in self.layers if isinstance(layer.op, _LOSSES))

    @cached_property
    def opaque(self) -> tuple[Layer, ...]:
        """Return the layers with unknown content: they have no reference, and their cost is not known."""
        return tuple(layer for layer in self.layers if isinstance(layer.op, Module | ModuleLoss))

    @cached_property
    def own_step(self) -> ModuleLoss | None:
        """Return the module whose file defines its inputs and its loss, if the graph is one."""
        return next((layer.op for layer in self.layers if isinstance(layer.op, ModuleLoss)), None)

    @cached_property
    def classes(self) -> int:
        return self.input_shapes(self.losses[0])[0][0]

    @cached_property
    def consumers(self) -> dict[str, tuple[Layer, ...]]:
        """Return the layers that read each layer's output."""
        found: dict[str, list[Layer]] = {layer.name: [] for layer in self.layers}
        for layer in self.layers:
            for name in layer.inputs:
                found[name].append(layer)
        return {name: tuple(takers) for name, takers in found.items()}

    @cached_property
    def after_parameters(self) -> frozenset[str]:
        """Return the layers that compute their input's gradient, because a layer before them has parameters."""
        reached: set[str] = set()
        trained_before: set[str] = set()
        for layer in self.layers:
            if not trained_before.isdisjoint(layer.inputs):
                reached.add(layer.name)
                trained_before.add(layer.name)
            elif self.parameters(layer):
                trained_before.add(layer.name)
        return frozenset(reached)

    @cached_property
    def sha(self) -> str:
        """Return the SHA-256 of what the network computes, without its name."""
        content = dict(self.to_json())
        del content["name"]
        for entry, layer in zip(content["layers"], self.layers, strict=True):
            for name in layer.op.ignored_in_sha:
                del entry[name]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": GRAPH_SCHEMA,
            "name": self.name,
            "layers": [
                {"name": layer.name, "op": layer.op.kind, "inputs": list(layer.inputs), **_attributes(layer.op)}
                for layer in self.layers
            ],
        }

    def to_worker_json(self) -> dict[str, Any]:
        """Return `to_json` with every shape, so that a worker in an old Python needs no code of ours to read it."""
        described = self.to_json()
        for entry, layer in zip(described["layers"], self.layers, strict=True):
            entry["output"] = list(self.shapes[layer.name])
            entry["parameters"] = {name: list(shape) for name, shape in self.parameters(layer).items()}
        return described

    @staticmethod
    def from_worker_json(described: Mapping[str, Any]) -> Graph:
        """Return the graph from the output of `to_worker_json`."""
        added = ("output", "parameters")
        layers = [{key: value for key, value in layer.items() if key not in added} for layer in described["layers"]]
        return Graph.from_json({**described, "layers": layers})

    @staticmethod
    def from_json(data: object) -> Graph:
        """Make a graph from decoded JSON. Raises GraphError with the layer and its mistake."""
        if not isinstance(data, Mapping):
            raise GraphError("a graph must be a JSON object with name and layers")
        content = cast(Mapping[str, Any], data)
        if content.get("schema") != GRAPH_SCHEMA:
            raise GraphError(f"graph schema {content.get('schema')!r} is not {GRAPH_SCHEMA}")
        name, entries = content.get("name"), content.get("layers")
        if not isinstance(name, str) or not isinstance(entries, list):
            raise GraphError("a graph must have a name (text) and layers (a list)")
        return Graph(name, [_layer_from_json(entry, i) for i, entry in enumerate(cast(list[object], entries))])


def make_op(kind: str, attributes: Mapping[str, object]) -> Op:
    """Make an operation from its name and JSON attributes. Raises OpError if they do not fit."""
    try:
        return _make_op(kind, **attributes)
    except TypeError:  # a list from JSON cannot be a cache key
        return _make_op.__wrapped__(kind, **attributes)


# Deep networks repeat a few operations thousands of times. `typed`, because True == 1 and only one of them is a number.
@lru_cache(maxsize=4096, typed=True)
def _make_op(kind: str, /, **attributes: object) -> Op:
    if kind not in OPS:
        raise OpError(f"unknown op {kind!r}; {nearest(kind, OPS)}")
    op_type = OPS[kind]
    known = {field.name: field for field in fields(op_type)}
    hints = _hints(op_type)
    for name in attributes:
        if name not in known:
            raise OpError(f"{kind} has no attribute {name!r}; {nearest(name, known) if known else 'it has none'}")
    for name, field in known.items():
        if field.default is MISSING and name not in attributes:
            raise OpError(f"{kind} needs the attribute {name!r}")
    return op_type(**{name: _coerce(name, value, hints[name]) for name, value in attributes.items()})


@cache
def _hints(op_type: type[Op]) -> dict[str, Any]:
    return typing.get_type_hints(op_type)


_KINDS_IN_WORDS = {bool: "true or false", int: "a whole number", float: "a finite number", str: "text"}


def _coerce(name: str, value: object, hint: object) -> object:
    """Convert one attribute to its declared type; a single number means both sides of a pair, or all four of a pad."""
    if hint is bool:
        if isinstance(value, bool):
            return value
    elif hint is int:
        if _is_whole(value):
            return value
    elif hint is float:
        # Python's JSON parser accepts NaN, Infinity, and whole numbers too large for a float.
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
            return float(value)
    elif hint is str:
        if isinstance(value, str):
            return value
    elif isinstance(hint, types.GenericAlias):
        return _coerce_numbers(name, value, None if ... in hint.__args__ else len(hint.__args__))
    raise OpError(f"{name} must be {_KINDS_IN_WORDS[cast(type, hint)]}, not {value!r}")


def _coerce_numbers(name: str, value: object, length: int | None) -> tuple[object, ...]:
    """Check for `length` whole numbers, or any number of them if `length` is None."""
    numbers = [value] * (length or 1) if _is_whole(value) else value
    if isinstance(numbers, (list, tuple)):
        items = tuple(cast(list[object], numbers))
        if length in (None, len(items)) and all(_is_whole(item) for item in items):
            return items
    expected = "a list of whole numbers" if length is None else f"{length} whole numbers"
    raise OpError(f"{name} must be {expected}, not {value!r}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _layer_from_json(entry: object, position: int) -> Layer:
    if not isinstance(entry, Mapping):
        raise GraphError(f"layer number {position + 1}: must be a JSON object")
    content = dict(cast(Mapping[str, object], entry))
    name, kind, inputs = content.pop("name", None), content.pop("op", None), content.pop("inputs", [])
    if not isinstance(name, str):
        raise GraphError(f"layer number {position + 1}: needs a name")
    if not isinstance(kind, str):
        raise GraphError(f"layer {name!r}: needs an op")
    if not isinstance(inputs, list) or not all(isinstance(item, str) for item in cast(list[object], inputs)):
        raise GraphError(f"layer {name!r}: inputs must be a list of layer names")
    try:
        return Layer(name=name, op=make_op(kind, content), inputs=tuple(cast(list[str], inputs)))
    except OpError as error:
        raise GraphError(f"layer {name!r}: {error}") from None


def _attributes(op: Op) -> dict[str, object]:
    values = {field.name: getattr(op, field.name) for field in fields(op)}
    return {
        name: list(cast(tuple[int, ...], value)) if isinstance(value, tuple) else value
        for name, value in values.items()
    }


def _infer(graph_name: str, layers: tuple[Layer, ...]) -> dict[str, Shape]:
    """Return the output shape of every layer. Raises GraphError with the first invalid layer."""
    if not _is_one_line(graph_name):
        raise GraphError(f"a graph's name must be one line of text, not {graph_name!r}")
    if len(graph_name) > LONGEST_NAME:
        raise GraphError(f"the graph {_begun(graph_name)}: {_too_long(graph_name)}")
    shapes: dict[str, Shape] = {}
    for layer in layers:
        try:
            if not _is_one_line(layer.name):
                raise OpError("a layer's name must be one line of text")
            if len(layer.name) > LONGEST_NAME:
                raise OpError(_too_long(layer.name))
            if layer.name in shapes:
                raise OpError("the name is used twice")
            shapes[layer.name] = _output(layer.op, _shapes_of_inputs(layer, shapes, layers))
        except OpError as error:
            raise GraphError(f"layer {_begun(layer.name)}: {error}") from None
    _check_whole(graph_name, layers, shapes)
    return shapes


def _shapes_of_inputs(layer: Layer, shapes: Mapping[str, Shape], layers: tuple[Layer, ...]) -> tuple[Shape, ...]:
    try:
        inputs = tuple([shapes[name] for name in layer.inputs])
    except KeyError as missing:
        name, all_names = missing.args[0], {other.name for other in layers}
        if name in all_names:
            raise OpError(f"its input {name!r} comes after it; a layer must follow its inputs") from None
        raise OpError(f"its input {name!r} is no layer; {nearest(name, all_names)}") from None
    if () in inputs:
        raise OpError(f"its input {layer.inputs[inputs.index(())]!r} is a loss, which has no output to use")
    return inputs


@lru_cache(maxsize=4096)
def _output(op: Op, inputs: tuple[Shape, ...]) -> Shape:
    """Check the operation and return its output shape for these inputs."""
    fewest, most = op.arity
    if len(inputs) < fewest or (most is not None and len(inputs) > most):
        expected = str(fewest) if most == fewest else f"at least {fewest}"
        raise OpError(f"{op.kind} takes {expected} inputs, not {len(inputs)}")
    op.check()
    return op.output(list(inputs))


def _is_one_line(name: str) -> bool:
    """Whether it is printable, so without unpaired surrogates: JSON can contain them, but they cannot be encoded."""
    return bool(name) and name.isprintable()


def _begun(name: str) -> str:
    return repr(name if len(name) <= LONGEST_NAME else f"{name[:40]}…")


def _too_long(name: str) -> str:
    return f"its name has {len(name):,} characters; give it one of at most {LONGEST_NAME}"


def _check_whole(graph_name: str, layers: tuple[Layer, ...], shapes: Mapping[str, Shape]) -> None:
    inputs = [layer for layer in layers if isinstance(layer.op, _INPUTS)]
    losses = [layer for layer in layers if isinstance(layer.op, _LOSSES)]
    if len(inputs) != 1:
        raise GraphError(f"graph {graph_name!r} has {len(inputs)} input layers; it needs exactly one")
    if not losses:
        raise GraphError(f"graph {graph_name!r} has no loss; end it with a softmax_cross_entropy layer")
    classes = {layer.name: shapes[layer.inputs[0]][0] for layer in losses}
    if len(set(classes.values())) != 1:
        raise GraphError(f"graph {graph_name!r}: its losses differ in the number of classes: {classes}")
    unused = shapes.keys() - {name for layer in layers for name in layer.inputs}
    for layer in layers:
        if layer.name in unused and not isinstance(layer.op, _LOSSES):
            raise GraphError(f"layer {layer.name!r}: nothing uses its output")
