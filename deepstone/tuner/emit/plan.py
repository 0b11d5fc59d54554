"""Finds how a person would write a network: which layers are one block, which blocks share one class, what repeats.

    layers    conv1 bn1 relu | conv bn relu conv bn add relu | conv bn relu conv bn add relu | pool fc
    blocks    ConvBnRelu     | Residual                      | Residual                      | pool fc
                               ConvBnRelu, ConvBn, add, relu
    repeats                    Residual, twice

Uses of one structure share a block. Where they differ in a number, such as the channels, the block has a parameter.
Parameters that are always equal are one. A block has one input and one output, and its layers follow each other in the
graph, so code written in this order makes the parameters in the order of the graph.
"""

from __future__ import annotations

import keyword
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from msgspec import Struct

from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Activation, Add, BatchNorm, Concat, Conv, Dropout, Input, Op, SoftmaxCrossEntropy

Slot: TypeAlias = int | float | bool | str | tuple[int, ...]
_CHANNELS: Final = ("inputs", "channels", "features")  # numbers of channels: equal ones are one parameter
# What a layer may not be called: words of Python, and what classes of the frameworks have already.
_TAKEN: Final = frozenset(
    (
        *keyword.kwlist,
        *("x", "new", "params", "stats", "rng", "key", "training", "labels", "images"),
        *("add_module", "apply", "buffers", "children", "compile", "cpu", "cuda", "double", "eval", "float", "forward"),
        *("half", "modules", "name", "name_scope", "parameters", "self", "share_memory", "state_dict", "submodules"),
        *("to", "train", "trainable_variables", "type", "variables", "xpu", "ipu", "mtia", "bfloat16", "zero_grad"),
    )
)
_LONG: Final = 6  # a block that is used once is written as one from this many nodes on


class Described(Struct, frozen=True, kw_only=True):
    """An operation in a framework's code: what two uses of one class must share, and the numbers that may differ."""

    structure: tuple[Hashable, ...]
    slots: Mapping[str, Slot]


class Node(Struct, frozen=True, kw_only=True):
    """One operation, or one use of a block. `value`: the layer whose output it computes."""

    value: str
    inputs: tuple[str, ...]
    layers: tuple[Layer, ...]
    structure: tuple[Hashable, ...]
    slots: Mapping[str, Slot]
    block: Block | None = None
    count: int = 1  # uses one after the other

    @property
    def op(self) -> Op:
        """The only operation, or the last one of a block."""
        return self.layers[-1].op


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Block:
    """The code of several uses. `nodes`: of the first one; `texts`: the parameter that a slot of a node takes."""

    name: str
    source: str
    nodes: tuple[Node, ...]
    texts: Mapping[tuple[int, str], str]
    parameters: tuple[str, ...]


class Plan(Struct, frozen=True, kw_only=True):
    """Blocks, those before the ones that use them, and the network itself. `scores`: of each loss, with its weight."""

    blocks: tuple[Block, ...]
    nodes: tuple[Node, ...]
    source: str
    scores: tuple[tuple[str, float], ...]
    dropped: tuple[str, ...]  # dropout layers that are left out


def plan_of(
    graph: Graph,
    describe: Callable[[Layer], Described],
    *,
    dropout: bool,
    may_repeat: Callable[[Node], bool] = lambda _node: True,
) -> Plan:
    """`describe` raises UsageError for an operation that it cannot write."""
    same_as: dict[str, str] = {}
    nodes: list[Node] = []
    for layer in graph.layers:
        inputs = tuple(same_as.get(name, name) for name in layer.inputs)
        if isinstance(layer.op, Dropout) and not dropout:
            same_as[layer.name] = inputs[0]
        elif not isinstance(layer.op, Input | SoftmaxCrossEntropy):
            found = describe(layer)
            nodes.append(
                Node(
                    value=layer.name,
                    inputs=inputs,
                    layers=(layer,),
                    structure=found.structure,
                    slots=found.slots,
                )
            )
    scores = tuple((same_as.get(each.inputs[0], each.inputs[0]), _weight(each)) for each in graph.losses)
    planner = _Planner(scores={name for name, _ in scores})
    nodes = planner.blocks_of(nodes, _normed_convolutions(nodes, planner.readers(nodes)), least=2)
    nodes = planner.blocks_of(nodes, planner.parts(nodes, graph.input.name), least=2, long=_LONG)
    return Plan(
        blocks=tuple(planner.blocks),
        nodes=tuple(planner.repeats(nodes, may_repeat)),
        source=graph.input.name,
        scores=scores,
        dropped=tuple(same_as),
    )


def _weight(layer: Layer) -> float:
    assert isinstance(layer.op, SoftmaxCrossEntropy)
    return layer.op.weight


def _normed_convolutions(nodes: Sequence[Node], readers: Mapping[str, int]) -> list[range]:
    """Convolutions with their batch norm, and the activation after it."""
    found: list[range] = []
    for start, node in enumerate(nodes):
        if not isinstance(node.op, Conv):
            continue
        end = start + 1
        for kind in (BatchNorm, Activation):
            follows = end < len(nodes) and nodes[end].inputs == (nodes[end - 1].value,)
            if follows and isinstance(nodes[end].op, kind) and readers[nodes[end - 1].value] == 1:
                end += 1
            else:
                break
        if end - start > 1:
            found.append(range(start, end))
    return found


class _Planner:
    def __init__(self, scores: set[str]) -> None:
        self.blocks: list[Block] = []
        self._scores = scores

    def readers(self, nodes: Iterable[Node]) -> Counter[str]:
        """How many inputs each value is; the result of a network is read as well."""
        found = Counter(name for node in nodes for name in node.inputs)
        found.update(self._scores)
        return found

    def parts(self, nodes: Sequence[Node], source: str) -> list[range]:
        """What lies between places where only one value is needed later, with the activation that follows."""
        last_use = {name: number for number, node in enumerate(nodes) for name in node.inputs}
        ends: list[int] = []
        reach = last_use.get(source, 0)  # the last use of anything computed so far, but for the newest value
        for number, node in enumerate(nodes):
            if reach <= number:
                ends.append(number + 1)
            reach = max(reach, last_use.get(node.value, 0))
        parts = [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        found: list[range] = []
        for part, following in zip(parts, [*parts[1:], range(0)], strict=True):
            if len(part) == 1 or not self._is_one_output(nodes, part):
                continue
            joins = len(following) == 1 and isinstance(nodes[following[0]].op, Activation)
            joins = joins and nodes[following[0]].block is None and nodes[part[-1]].value not in self._scores
            found.append(range(part.start, part.stop + 1) if joins else part)
        return found

    def _is_one_output(self, nodes: Sequence[Node], part: range) -> bool:
        inner = {nodes[number].value for number in part[:-1]}
        inputs = {name for number in part for name in nodes[number].inputs}
        outer = inputs - inner
        return not inner & self._scores and len(outer) == 1 and inner <= inputs

    def blocks_of(self, nodes: Sequence[Node], parts: Sequence[range], *, least: int, long: int = 0) -> list[Node]:
        """Replace the parts of a structure that occurs `least` times, or that has many nodes, by uses of a block."""
        by_structure: dict[tuple[Hashable, ...], list[range]] = {}
        for part in parts:
            by_structure.setdefault(_structure(nodes, part), []).append(part)
        uses: dict[int, tuple[int, Node]] = {}
        for alike in by_structure.values():
            if len(alike) >= least or (long and len(alike[0]) >= long):
                uses.update(self._uses(nodes, alike))
        replaced: list[Node] = []
        number = 0
        while number < len(nodes):
            end, node = uses.get(number, (number + 1, nodes[number]))
            replaced.append(node)
            number = end
        return replaced

    def _uses(self, nodes: Sequence[Node], parts: Sequence[range]) -> dict[int, tuple[int, Node]]:
        first = [nodes[number] for number in parts[0]]
        texts, values = _parameters(nodes, parts)
        block = Block(
            name=self._name(first),
            source=_source(nodes, parts[0]),
            nodes=tuple(first),
            texts=texts,
            parameters=tuple(values),
        )
        self.blocks.append(block)
        return {
            part.start: (
                part.stop,
                Node(
                    value=nodes[part[-1]].value,
                    inputs=(_source(nodes, part),),
                    layers=tuple(layer for number in part for layer in nodes[number].layers),
                    structure=(block.name,),
                    slots={name: column[which] for name, column in values.items()},
                    block=block,
                ),
            )
            for which, part in enumerate(parts)
        }

    def _name(self, nodes: Sequence[Node]) -> str:
        kinds = [type(node.op) for node in nodes]
        if is_normed_convolution(nodes):
            wanted = "".join("Norm" if kind is BatchNorm else kind.__name__ for kind in kinds)
        else:
            wanted = "Residual" if Add in kinds[-2:] else "Branches" if Concat in kinds[-2:] else "Block"
        taken = {block.name for block in self.blocks}
        return next(name for name in (wanted, *(f"{wanted}{n}" for n in range(2, 10_000))) if name not in taken)

    def repeats(self, nodes: Sequence[Node], may_repeat: Callable[[Node], bool]) -> list[Node]:
        """Equal uses of a block, one after the other, become one node."""
        readers, found = self.readers(nodes), list[Node]()
        for node in nodes:
            last = found[-1] if found else None
            alike = last is not None and node.block is not None and node.block is last.block and may_repeat(node)
            if (
                last
                and alike
                and node.slots == last.slots
                and node.inputs == (last.value,)
                and readers[last.value] == 1
            ):
                found[-1] = Node(
                    value=node.value,
                    inputs=last.inputs,
                    layers=(*last.layers, *node.layers),
                    structure=node.structure,
                    slots=node.slots,
                    block=node.block,
                    count=last.count + 1,
                )
            else:
                found.append(node)
        return found


def is_normed_convolution(nodes: Sequence[Node]) -> bool:
    kinds = (Conv, BatchNorm, Activation)
    plain = all(node.block is None and isinstance(node.op, kind) for node, kind in zip(nodes, kinds, strict=False))
    return 2 <= len(nodes) <= len(kinds) and plain


def _source(nodes: Sequence[Node], part: range) -> str:
    inner = {nodes[number].value for number in part}
    return next(name for number in part for name in nodes[number].inputs if name not in inner)


def _structure(nodes: Sequence[Node], part: range) -> tuple[Hashable, ...]:
    place = {nodes[number].value: number - part.start for number in part}
    return tuple(
        (nodes[number].structure, tuple(place.get(name, -1) for name in nodes[number].inputs)) for number in part
    )


def _parameters(
    nodes: Sequence[Node], parts: Sequence[range]
) -> tuple[dict[tuple[int, str], str], dict[str, tuple[Slot, ...]]]:
    """The parameter of each slot that differs between the parts, and the value of each parameter in each part."""
    texts: dict[tuple[int, str], str] = {}
    values: dict[str, tuple[Slot, ...]] = {}
    by_column: dict[tuple[str, tuple[Slot, ...]], str] = {}
    names = attribute_names([nodes[number] for number in parts[0]])
    for place, first in enumerate(parts[0]):
        for slot in nodes[first].slots:
            column = tuple(nodes[part.start + place].slots[slot] for part in parts)
            if len({repr(each) for each in column}) == 1:
                continue
            plain = _CHANNELS[1] if slot.rpartition("_")[2] in _CHANNELS else slot
            key = plain, column
            if key not in by_column:
                own = f"{names[place]}_{slot}"
                by_column[key] = slot if slot not in values else own if own not in values else f"{own}_{len(values)}"
                values[by_column[key]] = column
            texts[place, slot] = by_column[key]
    if "channels" in values and any(name.endswith("_channels") for name in values):
        first = next(place for (place, _), name in texts.items() if name == "channels")
        own = f"{names[first]}_channels"
        values = {own if name == "channels" else name: column for name, column in values.items()}
        texts = {key: own if name == "channels" else name for key, name in texts.items()}
    return texts, values


def attribute_names(nodes: Sequence[Node]) -> list[str]:
    """A name of each node for code: that of its layer, without what all of them begin with."""
    if is_normed_convolution(nodes):
        return ["norm" if isinstance(node.op, BatchNorm) else node.op.kind for node in nodes]
    begin = common_begin([layer.name for node in nodes for layer in node.layers]) if len(nodes) > 1 else ""
    taken: set[str] = set()
    found: list[str] = []
    for node in nodes:
        wanted = _own_name(node, begin)
        name = next(each for each in (wanted, *(f"{wanted}_{n}" for n in range(2, 10_000))) if each not in taken)
        taken.add(name)
        found.append(name)
    return found


def _own_name(node: Node, begin: str) -> str:
    """A convolution gives its block its name; what has several inner layers, their common begin."""
    own = [layer.name for layer in node.layers]
    name = own[0] if len(own) <= 3 else common_begin(own) or own[0]
    if node.count > 1:
        each = len(own) // node.count
        first, last = common_begin(own[:each]), common_begin(own[-each:])
        shared = common_begin([first, last])
        name = f"{first}_to_{last.removeprefix(shared)}" if first and last else own[0]
    return identifier(name.removeprefix(begin) or name, node.op.kind)


def common_begin(names: Sequence[str]) -> str:
    """What all names begin with, up to a separator: of "a.0.conv" and "a.0.norm" it is "a.0."."""
    shortest, longest = min(names), max(names)
    same = next((n for n, (a, b) in enumerate(zip(shortest, longest, strict=False)) if a != b), len(shortest))
    while same and shortest[same - 1] not in "./_- ":
        same -= 1
    return shortest[:same]


def identifier(name: str, kind: str) -> str:
    """A name of Python's for a layer's name."""
    plain = "".join(each if each.isascii() and each.isalnum() else "_" for each in name)
    plain = "_".join(part for part in plain.split("_") if part).lower()
    if not plain or plain[0].isdigit():
        plain = f"{kind}_{plain}".rstrip("_")
    return f"{plain}_" if plain in _TAKEN else plain
