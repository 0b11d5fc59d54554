"""What the code of a network shares in all frameworks: its layers, its first words, its loss, how numbers look."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import ClassVar, Final

from deepstone.errors import UsageError
from deepstone.graph import ops
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Op, Pair, Shape
from deepstone.tuner.emit.body import Body, Use
from deepstone.tuner.emit.plan import Block, Described, Plan, Slot

# What can be written: all operations that have a reference. A user's own module is imported instead.
WRITABLE: Final[tuple[type[Op], ...]] = tuple(
    op for op in ops.OPS.values() if op not in (ops.Module, ops.ModuleLoss, ops.Tensors)
)


class NetworkWriter:
    """Writes a network as code of one framework. `functions`: those of the framework that compute an activation. What
    it has no function for, a helper computes; the code has only the helpers that it uses."""

    framework: ClassVar[str]
    functions: ClassVar[Mapping[type[Op], str]]

    def __init__(self, graph: Graph, *, nchw: bool) -> None:
        self._graph = graph
        self._nchw = nchw
        self._helpers: dict[str, None] = {}

    def _refused(self, name: str, op: Op) -> UsageError:
        return UsageError(f"--emit {self.framework}: layer {name!r}: {op.kind} cannot be written as code")

    def _described(self, layer: Layer) -> Described:
        """Raises UsageError for a layer that cannot be written."""
        op, sources = layer.op, self._graph.input_shapes(layer)
        if not isinstance(op, WRITABLE):
            raise self._refused(layer.name, op)
        return self._described_conv(op, sources[0]) if isinstance(op, ops.Conv) else self._described_other(layer)

    def _described_conv(self, op: ops.Conv, source: Shape) -> Described:
        raise NotImplementedError

    def _described_other(self, layer: Layer) -> Described:
        """An operation as every framework has it; a framework's own special cases come before."""
        op, sources = layer.op, self._graph.input_shapes(layer)
        structure: tuple[Hashable, ...] = (op,)
        slots: dict[str, Slot] = {}
        match op:
            case ops.Dense():
                structure, slots = (op.kind, op.bias), {"inputs": sources[0][0], "features": op.features}
            case ops.BatchNorm():
                structure = (op.kind,)
                slots = {"channels": sources[0][0], "epsilon": op.epsilon, "momentum": op.momentum}
            case ops.Multiply():
                structure = (op.kind, tuple(len(source) for source in sources))
            case _:
                pass
        return Described(structure=structure, slots=slots)

    def _pool(self, use: Use, op: ops.MaxPool | ops.AveragePool) -> str:
        raise NotImplementedError

    def _helper(self, name: str, *given: object) -> str:
        """A call of a helper."""
        self._helpers[name] = None
        return f"{name}({', '.join(map(str, given))})"

    def _written_alike(self, use: Use) -> str:
        """A layer as most frameworks write it; a framework's own ways come before."""
        op, x = use.node.op, use.arguments[0]
        match op:
            case ops.Activation() if type(op) in self.functions:
                return f"{self.functions[type(op)]}({x})"
            case ops.Clip():
                return self._helper("clip", x, op.low, op.high)
            case ops.HardSigmoid() | ops.HardSwish():
                return self._helper(op.kind, x)
            case ops.MaxPool() | ops.AveragePool():
                return self._pool(use, op)
            case ops.Add():
                return " + ".join(use.arguments)
            case ops.Multiply():
                return " * ".join(self._factors(use))
            case ops.Slice():
                taken = f"{op.first}:{op.first + op.channels}"
                return f"{x}[:, {taken}]" if self._nchw else f"{x}[..., {taken}]"
            case ops.Shuffle():
                return self._helper("shuffle", x, op.groups)
            case _:
                raise self._refused(use.node.value, op)

    def _factors(self, use: Use) -> list[str]:
        """A flat gate gets a height and a width of 1. A dropout layer that is left out does not change a shape."""
        shapes = self._graph.shapes
        images = len(shapes[use.node.value]) == 3
        flat = "[:, :, None, None]" if self._nchw else "[:, None, None, :]"
        factors = zip(use.arguments, use.node.inputs, strict=True)
        return [f"{code}{flat}" if images and len(shapes[name]) == 1 else code for code, name in factors]


def body_of_network(plan: Plan) -> Body:
    return Body(nodes=plan.nodes, source=plan.source, results=[name for name, _ in plan.scores], parameters={})


def body_of_block(block: Block) -> Body:
    return Body(nodes=block.nodes, source=block.source, results=[block.nodes[-1].value], parameters=block.texts)


def with_needed(wanted: Iterable[str], helpers: Iterable[str], needs: Mapping[str, Sequence[str]]) -> list[str]:
    """The helpers that are wanted, in their order; those that another one needs come before it."""
    found: dict[str, None] = {}

    def want(name: str) -> None:
        for needed in needs.get(name, ()):
            want(needed)
        found[name] = None

    asked = set(wanted)
    for name in helpers:
        if name in asked:
            want(name)
    return list(found)


def side(pair: Pair) -> Slot:
    """Equal sides are one number."""
    return pair[0] if pair[0] == pair[1] else pair


def sides(pair: Pair) -> str:
    return str(side(pair))


def words_about(graph: Graph, plan: Plan) -> list[str]:
    """The docstring of a network: its name, its size, what of it is left out."""
    parameters = sum(math.prod(shape) for layer in graph.layers for shape in graph.parameters(layer).values())
    told = f"{graph.name}: {parameters:,} parameters."
    if plan.dropped:
        several = len(plan.dropped) > 1
        told += f" Dropout was off when it was measured: {_listed(plan.dropped)} {'are' if several else 'is'} left out."
    return textwrap.wrap(told.replace("\\", "/").replace('"', "'"), 108, break_on_hyphens=False)


def _listed(names: Sequence[str]) -> str:
    few = ", ".join(names[:4])
    return few if len(names) <= 4 else f"{few} and {len(names) - 4} more"


def described_network(graph: Graph, plan: Plan, indent: str = "    ") -> list[str]:
    lines = words_about(graph, plan)
    if len(lines) == 1:
        return [f'{indent}"""{lines[0]}"""', ""]
    return [f'{indent}"""{lines[0]}', *(f"{indent}{line}" for line in lines[1:]), f'{indent}"""', ""]


def losses(plan: Plan, network: str, cross_entropy: Callable[[str], str]) -> list[str]:
    """Lines that return the loss of what a network gives: a score for each class, or several of them with weights."""
    weights = [weight for _, weight in plan.scores]
    if len(weights) == 1:
        weight = "" if weights[0] == 1.0 else f"{weights[0]} * "
        return [f"return {weight}{cross_entropy(network)}"]
    return [
        f"weights = {weights}",
        f"losses = [{cross_entropy('scores')} for scores in {network}]",
        "return sum(weight * loss for weight, loss in zip(weights, losses))",
    ]


def chosen_lines(code: str, chosen: set[str], *, narrow: bool) -> str:
    """The lines of a helper whose tags (`#! NHWC CPU`) are all chosen; what stands in ⟨ ⟩ is for narrow activations."""
    code = re.sub(r"⟨([^⟩]*)⟩", r"\1" if narrow else "", code)
    lines: list[str] = []
    for line in code.split("\n"):
        text, _, tags = line.partition("  #! ")
        if chosen.issuperset(tags.split()):
            lines.append(re.sub(r"return \(([^(),]*)\)$", r"return \1", text))
    return "\n".join(lines)
