"""A graph of named layers, checked when it is made: names, inputs, order, shapes."""

from __future__ import annotations

import hashlib
import json
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from typing import Any, cast

from deepstone.errors import GraphError, nearest
from deepstone.graph.ops import OPS, Input, Op, OpError, Shape, SoftmaxCrossEntropy

GRAPH_SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One named node: what it does and whose outputs it takes."""

    name: str
    op: Op
    inputs: tuple[str, ...] = ()


class Graph:
    """Layers in an order in which each comes after its inputs. Immutable; a graph that exists is well formed."""

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
        return next(layer for layer in self.layers if isinstance(layer.op, Input))

    @cached_property
    def losses(self) -> tuple[Layer, ...]:
        return tuple(layer for layer in self.layers if isinstance(layer.op, SoftmaxCrossEntropy))

    @cached_property
    def classes(self) -> int:
        return self.input_shapes(self.losses[0])[0][0]

    @cached_property
    def consumers(self) -> dict[str, tuple[Layer, ...]]:
        """Who takes each layer's output."""
        found: dict[str, list[Layer]] = {layer.name: [] for layer in self.layers}
        for layer in self.layers:
            for name in layer.inputs:
                found[name].append(layer)
        return {name: tuple(takers) for name, takers in found.items()}

    @cached_property
    def after_parameters(self) -> frozenset[str]:
        """Layers whose input's gradient training needs, because something trained lies before them."""
        reached: set[str] = set()
        trained_before: set[str] = set()
        for layer in self.layers:
            if any(name in trained_before for name in layer.inputs):
                reached.add(layer.name)
            if layer.name in reached or self.parameters(layer):
                trained_before.add(layer.name)
        return frozenset(reached)

    @cached_property
    def sha(self) -> str:
        """SHA-256 of what the network computes; its name does not count."""
        content = dict(self.to_json())
        del content["name"]
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
        """`to_json` with every shape spelled out: a worker in an old Python needs no code of ours to read it."""
        described = self.to_json()
        for entry, layer in zip(described["layers"], self.layers, strict=True):
            entry["output"] = list(self.shapes[layer.name])
            entry["parameters"] = {name: list(shape) for name, shape in self.parameters(layer).items()}
        return described

    @staticmethod
    def from_json(data: object) -> Graph:
        """A graph from decoded JSON; GraphError says which layer is wrong and how."""
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
    """An operation from its name and attributes as JSON has them; OpError when they do not fit."""
    if kind not in OPS:
        raise OpError(f"unknown op {kind!r}; {nearest(kind, OPS)}")
    op_type = OPS[kind]
    known = {field.name: field for field in fields(op_type)}
    hints = typing.get_type_hints(op_type)
    for name in attributes:
        if name not in known:
            raise OpError(f"{kind} has no attribute {name!r}; {nearest(name, known) if known else 'it has none'}")
    for name, field in known.items():
        if field.default is MISSING and name not in attributes:
            raise OpError(f"{kind} needs the attribute {name!r}")
    return op_type(**{name: _coerce(name, value, hints[name]) for name, value in attributes.items()})


def _coerce(name: str, value: object, hint: object) -> object:
    """One attribute of the declared type; a single number stands for both sides of a pair, or all four of a pad."""
    if hint is bool:
        if isinstance(value, bool):
            return value
    elif hint is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    elif hint is float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    elif isinstance(hint, types.GenericAlias):
        length = len(hint.__args__) if ... not in hint.__args__ else None
        numbers = [value] * (length or 1) if isinstance(value, int) else value
        if isinstance(numbers, (list, tuple)):
            items = cast(list[object], list(numbers))  # pyright: ignore[reportUnknownArgumentType]
            right_length = length is None or len(items) == length
            if right_length and all(isinstance(item, int) and not isinstance(item, bool) for item in items):
                return tuple(items)
            if length is not None:
                raise OpError(f"{name} must be {length} whole numbers, not {value!r}")
    raise OpError(f"{name} must be of type {getattr(hint, '__name__', hint)}, not {value!r}")


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
    """The output shape of every layer, or GraphError naming the first layer that is wrong."""
    if not graph_name:
        raise GraphError("a graph needs a name")
    shapes: dict[str, Shape] = {}
    all_names = {layer.name for layer in layers}
    for layer in layers:
        try:
            shapes[layer.name] = _infer_layer(layer, shapes, all_names)
        except OpError as error:
            raise GraphError(f"layer {layer.name!r}: {error}") from None
    _check_whole(graph_name, layers, shapes)
    return shapes


def _infer_layer(layer: Layer, shapes: Mapping[str, Shape], all_names: set[str]) -> Shape:
    if not layer.name or any(character in layer.name for character in "\0\n\r"):
        raise OpError("a layer's name must be one line of text")
    if layer.name in shapes:
        raise OpError("the name is used twice")
    fewest, most = layer.op.arity
    given = len(layer.inputs)
    if given < fewest or (most is not None and given > most):
        wanted = str(fewest) if most == fewest else f"at least {fewest}"
        raise OpError(f"{layer.op.kind} takes {wanted} inputs, not {given}")
    for name in layer.inputs:
        if name not in shapes:
            if name in all_names:
                raise OpError(f"its input {name!r} comes after it; a layer must follow its inputs")
            raise OpError(f"its input {name!r} is no layer; {nearest(name, all_names)}")
        if shapes[name] == ():
            raise OpError(f"its input {name!r} is a loss, which has no output to use")
    layer.op.check()
    return layer.op.output([shapes[name] for name in layer.inputs])


def _check_whole(graph_name: str, layers: tuple[Layer, ...], shapes: Mapping[str, Shape]) -> None:
    inputs = [layer for layer in layers if isinstance(layer.op, Input)]
    losses = [layer for layer in layers if isinstance(layer.op, SoftmaxCrossEntropy)]
    if len(inputs) != 1:
        raise GraphError(f"graph {graph_name!r} has {len(inputs)} input layers; it needs exactly one")
    if not losses:
        raise GraphError(f"graph {graph_name!r} has no loss; end it with a softmax_cross_entropy layer")
    classes = {shapes[layer.inputs[0]] for layer in losses}
    if len(classes) != 1:
        raise GraphError(f"graph {graph_name!r}: its losses differ in the number of classes")
    used = {name for layer in layers for name in layer.inputs}
    for layer in layers:
        if layer.name not in used and not isinstance(layer.op, SoftmaxCrossEntropy):
            raise GraphError(f"layer {layer.name!r}: nothing uses its output")
