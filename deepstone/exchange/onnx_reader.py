"""The state of reading an ONNX file node by node: facts about its arrays, and the layers so far.

onnx_nodes.py converts each kind of node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import msgspec

from deepstone.exchange import onnx_sizes
from deepstone.exchange.onnx_attributes import Refused
from deepstone.exchange.onnx_file import LOSSES, PRODUCER, Constant, Node, OnnxFile, readable
from deepstone.graph import ops
from deepstone.graph.graph import Layer, make_op
from deepstone.graph.ops import Op, OpError, Shape

_LISTED: Final = 10  # errors that one line holds
_LONGEST_NAME: Final = 200
_RESHAPES: Final = ("Expand", "Identity", "Reshape", "Unsqueeze")  # by which one number per channel becomes a gate
REMEDY: Final = "if it comes from torch, measure the module itself: FILE.py:FUNCTION"

Handlers: TypeAlias = "Mapping[str, Callable[[Reader, Node], None]]"


def some(texts: Sequence[str], most: int, between: str = ", ") -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return between.join(texts[:most]) + more


class Reader:
    """Reads the nodes in order, with the facts about every array so far."""

    def __init__(self, file: OnnxFile, handlers: Handlers, image: Shape | None = None) -> None:
        self._file = file
        self._handlers = handlers
        self._constants: dict[str, Constant] = dict(file.constants)
        self._layer_of: dict[str, str] = {}  # array -> the layer that gives it
        self._layers: dict[str, Layer] = {}
        self._shapes: dict[str, Shape] = {}
        self._lost: set[str] = set()  # arrays of nodes that were refused: what follows them is not their fault
        self._errors: list[str] = []
        self._uses = Counter(name for node in file.nodes for name in node.inputs)
        self._uses.update(file.outputs)
        self._readers: dict[str, list[Node]] = {}
        for node in file.nodes:
            for name in node.inputs:
                self._readers.setdefault(name, []).append(node)
        self._grouped: dict[str, tuple[int, bool]] = {}  # arrays whose channels a shuffle keeps in groups
        self._gates: set[str] = set()  # arrays that have a height and a width of 1, which their layers do not have
        self._batch = self._take_input(image)

    def _take_input(self, given: Shape | None) -> int | str:
        """Add the input image; return the file's batch."""
        inputs = {name: sides for name, sides in self._file.inputs.items() if self._uses[name]}
        if len(inputs) != 1:
            listed = some([readable(name) for name in inputs], _LISTED) or "none"
            raise Refused(f"must have exactly one input, the images; it has {listed}")
        ((name, sides),) = inputs.items()
        image = given or tuple(side for side in sides[1:] if isinstance(side, int) and side > 0)
        if len(sides) != 4 or len(image) != 3:
            shown = readable(", ".join(map(str, sides)))
            raise Refused(
                f"input {readable(name)!r} must be images of a known size, [batch, channels, height, width], "
                f"not [{shown}]; say their size with --input, as in --input 3x224x224"
            )
        layer = self._named(name)
        self._layers[layer] = Layer(name=layer, op=ops.Input(shape=image))
        self._shapes[layer] = image
        self._layer_of[name] = layer
        return sides[0]

    def take_nodes(self) -> None:
        for node in self._file.nodes:
            try:
                self._take(node)
            except (Refused, OpError) as error:
                self._errors.append(f"node {readable(node.name)!r} ({readable(node.op)}): {error}")
                self._lost.update(node.outputs)
        if self._errors:
            raise Refused(f"{some(self._errors, _LISTED, between='; ')}; {REMEDY}")

    def _take(self, node: Node) -> None:
        inputs = [name for name in node.inputs if name]
        if not self._lost.isdisjoint(inputs):
            self._lost.update(node.outputs)
            return
        for name in inputs:
            if name not in self._constants and name not in self._layer_of:
                raise Refused(f"its input {readable(name)!r} is not made by any node before it")
        if not node.outputs:
            raise Refused("gives nothing")
        several = ("BatchNormalization", "Split")
        if any(name and self._uses[name] for name in node.outputs[1:]) and node.op not in several:
            raise Refused("more than its first output is used")
        if all(name in self._constants for name in inputs) and node.op in onnx_sizes.COMPUTES:
            self._constants[node.outputs[0]] = onnx_sizes.computed(node, [self._constants[name] for name in inputs])
            return
        if node.op not in self._handlers or not any(name in self._layer_of for name in inputs):
            raise Refused("has no layer here, where it does more than compute a shape")
        if node.op not in ("Reshape", "Transpose") and not self._grouped.keys().isdisjoint(inputs):
            raise Refused("takes channels in groups, which only the shuffle of channels does here")
        self._handlers[node.op](self, node)

    # ---- what handlers ask for and give

    def source(self, node: Node, number: int = 0) -> str:
        """Return the layer of an input."""
        name = node.inputs[number]
        if name not in self._layer_of:
            raise Refused(f"its input {readable(name)!r} must not be a constant")
        return self._layer_of[name]

    def is_constant(self, name: str) -> bool:
        return name in self._constants

    def shape(self, node: Node, number: int = 0) -> Shape:
        return self._shapes[self.source(node, number)]

    def image(self, node: Node) -> Shape:
        shape = self.shape(node)
        if len(shape) != 3:
            raise Refused("needs an image, and what it gets is flat")
        return shape

    def constant(self, node: Node, number: int, what: str) -> Constant:
        found = self.optional(node, number, what)
        if found is None:
            raise Refused(f"has no {what}")
        return found

    def optional(self, node: Node, number: int, what: str) -> Constant | None:
        name = node.inputs[number] if number < len(node.inputs) else ""
        if name and name not in self._constants:
            raise Refused(f"its {what} must be a constant")
        return self._constants[name] if name else None

    def put(self, node: Node, op: Op, *sources: str, part: str = "", output: int = 0) -> str:
        """Add a layer for the node; this output of the node is the layer's."""
        op.check()
        given = sources or (self.source(node),)
        name = self._named(node.name + part)
        self._shapes[name] = op.output([self._shapes[source] for source in given])
        self._layers[name] = Layer(name=name, op=op, inputs=given)
        self._layer_of[node.outputs[output]] = name
        return name

    def hand_on(self, node: Node) -> None:
        """Make the output an alias of the input."""
        self._layer_of[node.outputs[0]] = self.source(node)
        if node.inputs[0] in self._gates:
            self._gates.add(node.outputs[0])

    def grouped(self, node: Node) -> tuple[int, bool]:
        """Return the groups of channels of its input, 0 if none, and whether they were swapped with their members."""
        return self._grouped.get(node.inputs[0], (0, False))

    def hand_on_grouped(self, node: Node, groups: int, *, swapped: bool) -> None:
        self.hand_on(node)
        self._grouped[node.outputs[0]] = (groups, swapped)

    def is_gate(self, name: str) -> bool:
        return name in self._gates

    def hand_on_as_gate(self, node: Node) -> None:
        """Make the output a gate, one number per channel: only products may read it."""
        if not self._only_scales(node):
            raise Refused("makes one number per channel an image; only a product can use that here")
        self._gates.add(node.outputs[0])
        self.hand_on(node)

    def _only_scales(self, node: Node) -> bool:
        name = node.outputs[0]
        return name not in self._file.outputs and all(
            reader.op == "Mul" or (reader.op in _RESHAPES and reader.inputs[0] == name and self._only_scales(reader))
            for reader in self._readers.get(name, ())
        )

    def of_own_input(self, node: Node, kind: type[Op]) -> str:
        """Return the layer of x in a product x · f(x), if f is of that kind and nothing else reads it."""
        for number in (0, 1) if len(node.inputs) == 2 else ():
            factor = self._layers[self.source(node, number)]
            other = self.source(node, 1 - number)
            if isinstance(factor.op, kind) and factor.inputs == (other,) and self._uses[node.inputs[number]] == 1:
                # A file of ours tells by the name which product it wrote for one layer.
                is_one = self._file.producer != PRODUCER or factor.name.startswith(f"{node.name}.sigmoid")
                return other if is_one else ""
        return ""

    def keep(self, node: Node, constant: Constant) -> None:
        self._constants[node.outputs[0]] = constant

    def give_bias(self, node: Node, number: int, bias: Constant) -> bool:
        """Add a constant to the layer before as its bias, if that is a convolution or a dense layer without one."""
        source = self.source(node, number)
        layer = self._layers[source]
        sides = tuple(side for side in bias.shape if side != 1)
        if not isinstance(layer.op, (ops.Conv, ops.Dense)) or layer.op.bias or self._uses[node.inputs[number]] != 1:
            return False
        channels = self._shapes[source][0]
        trailing = 1 if isinstance(layer.op, ops.Dense) else 3
        if sides != (() if channels == 1 else (channels,)) or bias.shape[-trailing:][:1] != (channels,):
            return False
        self._layers[source] = replace(layer, op=replace(layer.op, bias=True))
        self._layer_of[node.outputs[0]] = source
        return True

    def ends_here(self, node: Node) -> bool:
        """Whether the node's output is an output of the model and nothing else."""
        name = node.outputs[0]
        return name in self._file.outputs and self._uses[name] == 1

    def is_batch(self, side: int) -> bool:
        return side in (onnx_sizes.BATCH, -1, self._batch)

    def _named(self, wanted: str) -> str:
        """Return a printable and unique name for a layer."""
        text = readable(wanted, most=_LONGEST_NAME) or "layer"
        name, number = text, 1
        while name in self._layers:
            number += 1
            name = f"{text}_{number}"
        return name

    # ---- the end

    def finished(self) -> list[Layer]:
        """Return the layers that lead to an output, each followed by its loss if it has one."""
        statistics = {name for node in self._file.nodes if node.op == "BatchNormalization" for name in node.outputs[1:]}
        outputs = [name for name in dict.fromkeys(self._file.outputs) if name not in statistics]
        logits = {name: self._logits(name) for name in outputs}
        if not logits:
            raise Refused("has no output")
        losses = _losses(self._file.properties, logits) or self._plain_losses(logits)
        wanted = self._leading_to(logits.values())
        layers: list[Layer] = []
        for layer in self._layers.values():
            if layer.name in wanted:
                layers += [layer, *(loss for loss in losses if loss.inputs == (layer.name,))]
        return layers

    def _logits(self, output: str) -> str:
        if output not in self._layer_of:
            raise Refused(f"output {readable(output)!r} is not made by any node from the images")
        layer = self._layer_of[output]
        if len(self._shapes[layer]) != 1:
            shape = "x".join(map(str, self._shapes[layer]))
            raise Refused(f"output {readable(output)!r} is an image {shape}; a model ends in one number per class")
        return layer

    def _plain_losses(self, logits: Mapping[str, str]) -> list[Layer]:
        names = ["loss"] if len(logits) == 1 else [f"loss_{output}" for output in logits]
        return [
            Layer(name=self._named(name), op=ops.SoftmaxCrossEntropy(), inputs=(layer,))
            for name, layer in zip(names, logits.values(), strict=True)
        ]

    def _leading_to(self, ends: Iterable[str]) -> set[str]:
        found: set[str] = set()
        waiting = list(ends)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(self._layers[name].inputs)
        return found


class _ToldLoss(msgspec.Struct, frozen=True, kw_only=True):
    """A loss in a file that Deepstone wrote; `output` is its output of the file."""

    name: str
    weight: int | float
    output: str


def _losses(properties: Mapping[str, str], logits: Mapping[str, str]) -> list[Layer]:
    """Return the names and weights of the losses in a file that Deepstone wrote."""
    if LOSSES not in properties:
        return []
    try:
        told = msgspec.json.decode(properties[LOSSES], type=list[_ToldLoss])
        return [
            Layer(
                name=each.name,
                op=make_op(ops.SoftmaxCrossEntropy.kind, {"weight": each.weight}),
                inputs=(logits[each.output],),
            )
            for each in told
        ]
    except (msgspec.DecodeError, ValueError, TypeError, KeyError, RecursionError):
        raise Refused(f"its property {LOSSES} is not what `deepstone models --export` writes") from None
