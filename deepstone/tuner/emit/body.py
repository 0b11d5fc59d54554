"""Writes the lines of a function that computes some nodes: variables that are reused, and expressions within others."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from deepstone.graph.ops import Activation, Add, BatchNorm, Conv, Dense
from deepstone.tuner.emit.plan import Node, Slot, attribute_names

WIDTH: Final = 116
_OUTPUT_UNREAD: Final = (Conv, Dense, BatchNorm, Add)  # their backward does not read it, so it may be overwritten
_DEFAULTS: Final[Mapping[str, Slot]] = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
_MOST_NESTED: Final = 90  # characters of an expression within another


class Text(NamedTuple):
    """A number as code: a literal with its value, or the name of a parameter."""

    code: str
    value: Slot | None

    def __str__(self) -> str:
        return self.code


Texts: TypeAlias = Mapping[str, Text]


class Use(Struct, frozen=True, kw_only=True):
    """A node where it is computed. `arguments`: code of its inputs; `overwrites`: it may write over the first."""

    node: Node
    name: str
    texts: Texts
    arguments: tuple[str, ...]
    overwrites: bool


Computes: TypeAlias = Callable[[Use], str]  # the expression of a use


class Style(Struct, frozen=True, kw_only=True):
    """How a framework writes a node. `whole`: the lines of one that is no expression, for the variable it makes."""

    expression: Computes
    is_whole: Callable[[Node], bool] = lambda _node: False
    whole: Callable[[Use, str], list[str]] = lambda _use, _variable: []
    overwrites: bool = False


def literal(value: Slot) -> Text:
    return Text(f'"{value}"' if isinstance(value, str) else repr(value), value)


def texts_of(node: Node, place: int, parameters: Mapping[tuple[int, str], str]) -> Texts:
    """The code of each slot of the node at this place of a block; of a network itself there are only literals."""
    return {
        slot: Text(parameters[place, slot], None) if (place, slot) in parameters else literal(value)
        for slot, value in node.slots.items()
    }


def options(texts: Texts, *names: str) -> list[str]:
    """Arguments by name, without those that have the usual value."""
    return [f"{name}={texts[name]}" for name in names if texts[name].value != _DEFAULTS[name]]


def arguments(texts: Texts, names: Sequence[str]) -> str:
    """The arguments of a block: numbers of channels by their place, the others by name."""
    return ", ".join(
        str(texts[name]) if plain_place(names, name) else f"{name}={texts[name]}"
        for name in names
        if name not in _DEFAULTS or texts[name].value != _DEFAULTS[name]
    )


def plain_place(names: Sequence[str], name: str) -> bool:
    """Whether it and all before it are numbers of channels or features."""
    before = names[: list(names).index(name) + 1]
    return all(each.endswith(("inputs", "channels", "features")) for each in before)


def signature(names: Sequence[str]) -> str:
    """The parameters of a block; those with a usual value last."""
    return ", ".join(in_order(names, lambda name: f"{name}={_DEFAULTS[name]}" if name in _DEFAULTS else name))


def in_order(names: Sequence[str], written: Callable[[str], str]) -> list[str]:
    return [written(name) for name in sorted(names, key=lambda name: name in _DEFAULTS)]


@dataclass(kw_only=True, slots=True)
class Body:
    """Some nodes as code. `source`: the value that `x` is at first; `results`: the values that are returned."""

    nodes: Sequence[Node]
    source: str
    results: Sequence[str]
    parameters: Mapping[tuple[int, str], str]
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = attribute_names(self.nodes)

    def texts(self, place: int) -> Texts:
        return texts_of(self.nodes[place], place, self.parameters)

    def lines(self, style: Style) -> tuple[list[str], list[str]]:
        """The statements, and the expression of each result."""
        return _Lines(self, style).written()


class _Lines:
    def __init__(self, body: Body, style: Style) -> None:
        self._body = body
        self._style = style
        self._lines: list[str] = []
        self._last_use: dict[str, int] = {}
        self._readers: Counter[str] = Counter()
        for number, node in enumerate(body.nodes):
            self._readers.update(node.inputs)
            self._last_use.update(dict.fromkeys(node.inputs, number))
        self._readers.update(body.results)
        self._last_use.update(dict.fromkeys(body.results, len(body.nodes)))
        self._code = {body.source: "x"}  # a variable, or an expression that is used next and once
        self._variable = {body.source: "x"}  # values in variables that are needed later
        self._made = {node.value: node for node in body.nodes}
        self._new = 0

    def written(self) -> tuple[list[str], list[str]]:
        for number, node in enumerate(self._body.nodes):
            self._write(number, node)
        few = ["y", "z"]
        names = few if self._new <= len(few) else [f"branch{number}" for number in range(1, self._new + 1)]
        named = {f"«{number}»": name for number, name in enumerate(names, 1)}
        results = [self._code[name] for name in self._body.results]
        return [_renamed(line, named) for line in self._lines], [_renamed(each, named) for each in results]

    def _write(self, number: int, node: Node) -> None:
        style, inputs = self._style, node.inputs
        use = Use(
            node=node,
            name=self._body.names[number],
            texts=self._body.texts(number),
            arguments=tuple(self._code[name] for name in inputs),
            overwrites=style.overwrites and self._may_overwrite(inputs[0]),
        )
        for name in inputs:
            if name not in self._variable:
                del self._code[name]
        ended = [name for name in self._variable if self._last_use.get(name, -1) <= number]
        freed = [self._variable.pop(name) for name in ended]
        if isinstance(node.op, Add) and node.block is None and use.overwrites:
            self._add_in_place(number, use, freed)
            return
        if not style.is_whole(node):
            expression = style.expression(use)
            if self._is_nested(number, node, expression):
                self._code[node.value] = expression
                # A variable within an expression stays as it is until the next statement uses it.
                for name, variable in zip(ended, freed, strict=True):
                    self._variable[name] = variable
                    self._last_use[name] = number + 1
                return
        variable = self._variable_for(freed)
        if style.is_whole(node):
            self._lines += style.whole(use, variable)
        else:
            self._lines.append(f"{variable} = {style.expression(use)}")
        self._keep(node.value, variable)

    def _keep(self, value: str, variable: str) -> None:
        self._code[value] = self._variable[value] = variable

    def _add_in_place(self, number: int, use: Use, freed: list[str]) -> None:
        """`y += x`, where `y` may be overwritten and is a variable of its own."""
        first, *others = use.arguments
        if first.isidentifier() or (first.startswith("«") and first.endswith("»")):
            variable = first
        else:
            variable = self._variable_for([each for each in freed if each not in others])
            self._lines.append(f"{variable} = {first}")
        self._lines += [f"{variable} += {other}" for other in others]
        self._keep(use.node.value, variable)

    def _is_nested(self, number: int, node: Node, expression: str) -> bool:
        """Whether the next statement has it within: an activation, a norm, or the return."""
        if self._readers[node.value] != 1 or len(expression) > _MOST_NESTED:
            return False
        if number + 1 == len(self._body.nodes):
            return self._body.results == [node.value]
        following = self._body.nodes[number + 1]
        simple = isinstance(following.op, Activation | BatchNorm) and following.block is None
        return simple and node.value in following.inputs and not self._style.is_whole(following)

    def _variable_for(self, freed: list[str]) -> str:
        """The variable of an input that nothing reads any more; else `x`, if it is free; else a new one."""
        in_use = set(self._variable.values())
        for variable in (*freed, "x"):
            if variable not in in_use:
                return variable
        self._new += 1
        return f"«{self._new}»"

    def _may_overwrite(self, name: str) -> bool:
        made = self._made.get(name)
        return made is not None and isinstance(made.op, _OUTPUT_UNREAD) and self._readers[name] == 1


def _renamed(line: str, names: Mapping[str, str]) -> str:
    for old, new in names.items():
        line = line.replace(old, new)
    return line


def folded(code: str) -> str:
    """Code with lines of at most 120 characters: what is within the outermost parentheses goes to lines of its own."""
    return "\n".join(part for line in code.split("\n") for part in _fold(line))


def _fold(line: str) -> list[str]:
    if len(line) <= WIDTH or "(" not in line or line.lstrip().startswith(("#", '"')):
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    start, end = line.index("("), line.rindex(")")
    inner = line[start + 1 : end]
    if len(indent) + 4 + len(inner) > WIDTH:
        wrapped = textwrap.wrap(inner, WIDTH - len(indent) - 4, break_long_words=False, break_on_hyphens=False)
    else:
        wrapped = [inner]
    return [line[: start + 1], *(f"{indent}    {part}" for part in wrapped), f"{indent}{line[end:]}"]
