"""A program that XLA compiled: which instruction comes from which operation of the framework.

XLA keeps the framework's name of most operations. Instructions that it adds (copies, transposes) or rewrites (a
convolution whose operands it swaps) have none; they belong to the operations that use their results.

    %fused_computation (p: f32[8]) -> f32[8] {
      %p = f32[8]{0} parameter(0)
      ROOT %add.1 = f32[8]{0} add(%p, %p), metadata={op_name="jit(train)/jvp(layer_a)/add"}
    }
    ENTRY %main (x: f32[8]) -> f32[8] {
      ROOT %fusion = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused_computation
    }
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

# These run the computations that they call. A reduction calls one too, but only as its operator.
_CALLERS = frozenset({"fusion", "call", "while", "conditional", "async-start"})
# These do no work, or work that belongs to the user of the result.
_IDLE = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "broadcast", "iota", "after-all"})
_PRODUCTS = frozenset({"convolution", "dot"})

# Patterns of XLA's text form of a program.
_NAME = r"%?([\w.\-]+)"
_COMPUTATION = re.compile(rf"(?:ENTRY )?{_NAME} *(?:\(.*)?\{{\s*$")
_INSTRUCTION = re.compile(rf"\s+(ROOT )?{_NAME} = (.*)")
_OPCODE = re.compile(r"\s*([\w\-]+)(?=\()")
_OPERATION = re.compile(r'metadata=\{[^{}]*?op_name="((?:[^"\\]|\\.)*)"')
_OPERAND = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(rf"\b(?:calls|to_apply|body|condition)={_NAME}")
_LISTED = re.compile(r"\b(?:branch_computations|called_computations)=\{([^}]*)\}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Instruction:
    """`operation` is the framework's name of its origin; empty if XLA has none."""

    name: str
    opcode: str
    operation: str
    operands: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()  # computations
    position: int = -1  # of a parameter in its computation
    root: bool = False  # whether it is the result of its computation


class Program:
    """The instructions of one compiled program by name; names are unique."""

    def __init__(self, computations: Mapping[str, Sequence[Instruction]]) -> None:
        self._computations = computations
        self.instructions: dict[str, Instruction] = {}
        self._home: dict[str, str] = {}  # instruction to its computation
        self._users: dict[str, list[Instruction]] = {}
        self._callers: dict[str, list[Instruction]] = {}  # of each computation
        for computation, instructions in computations.items():
            for instruction in instructions:
                self.instructions[instruction.name] = instruction
                self._home[instruction.name] = computation
                for operand in instruction.operands:
                    self._users.setdefault(operand, []).append(instruction)
                for called in instruction.calls:
                    self._callers.setdefault(called, []).append(instruction)

    @property
    def operations(self) -> set[str]:
        """Return all names from the framework."""
        return {instruction.operation for instruction in self.instructions.values()}

    def runs(self, name: str) -> set[str]:
        """Return the instructions that a loop or branch runs one by one; a fusion has none."""
        instruction = self.instructions.get(name)
        if instruction is None or instruction.opcode == "fusion" or instruction.opcode not in _CALLERS:
            return set()
        return {found.name for called in instruction.calls for found in self._computations.get(called, ())}

    def work_of(self, name: str) -> list[Instruction]:
        """Return the work of an instruction: itself or, for a fusion, the named instructions in it.

        If they include convolutions or matrix products, only these count: the rest is small.
        """
        instruction = self.instructions[name]
        inside = [found for found in self._inside(instruction, set()) if found.opcode not in _IDLE]
        products = [found for found in inside if found.opcode in _PRODUCTS]
        named = [found for found in inside if found.operation]
        if products or named:
            return products or named
        return inside if inside and not instruction.operation else [instruction]

    def made_for(self, instruction: Instruction) -> set[str]:
        """Return the first named operations that use the result of an instruction."""
        found: set[str] = set()
        seen: set[str] = set()
        handed_on = [instruction]
        while handed_on:
            value = handed_on.pop()
            if value.name in seen:
                continue
            seen.add(value.name)
            for user in self._users.get(value.name, ()):
                if user.opcode in _CALLERS:
                    handed_on += self._parameters(user, user.operands.index(value.name))
                elif user.operation:
                    found.add(user.operation)
                elif user.opcode != "tuple" or user.root:
                    handed_on.append(user)
            if value.root:
                handed_on += self._callers.get(self._home[value.name], ())
        return found

    def _parameters(self, caller: Instruction, position: int) -> Iterator[Instruction]:
        """Yield the parameters of an operand inside the called computation."""
        for called in caller.calls:
            for found in self._computations.get(called, ()):
                if found.opcode == "parameter" and found.position == position:
                    yield found

    def _inside(self, instruction: Instruction, seen: set[str]) -> Iterator[Instruction]:
        if instruction.opcode not in _CALLERS:
            yield instruction
            return
        for name in instruction.calls:
            if name not in seen:
                seen.add(name)
                for found in self._computations.get(name, ()):
                    yield from self._inside(found, seen)


def program_of(text: str) -> Program:
    """Parse XLA's text form. Lines that are not instructions, such as tables of files, are skipped."""
    computations: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []
    for line in text.splitlines():
        instruction = _instruction(line)
        if instruction is not None:
            current.append(instruction)
            continue
        header = _COMPUTATION.match(line)
        if header is not None:
            current = computations.setdefault(header[1], [])
    return Program(computations)


def _instruction(line: str) -> Instruction | None:
    found = _INSTRUCTION.match(line)
    if found is None:
        return None
    rest = found[3]
    opcode = _OPCODE.match(rest, _end_of_type(rest))
    if opcode is None:
        return None
    end = _closing(rest, opcode.end())
    arguments, attributes = rest[opcode.end() + 1 : end - 1], rest[end:]
    operation = _OPERATION.search(attributes)
    called = [match[1] for match in _CALLED.finditer(attributes)]
    for match in _LISTED.finditer(attributes):
        called += [one.strip().lstrip("%") for one in match[1].split(",") if one.strip()]
    return Instruction(
        name=found[2],
        opcode=opcode[1],
        operation="" if operation is None else operation[1],
        operands=tuple(_OPERAND.findall(arguments)),
        calls=tuple(called),
        position=int(arguments) if opcode[1] == "parameter" and arguments.isdecimal() else -1,
        root=bool(found[1]),
    )


def _end_of_type(text: str) -> int:
    """Return the end of a type: one word, or several in brackets, possibly nested."""
    return _closing(text, 0) if text.startswith("(") else len(text.split(" ", 1)[0])


def _closing(text: str, opening: int) -> int:
    """Return the position after the bracket that closes the one at `opening`."""
    depth = 0
    for position in range(opening, len(text)):
        depth += (text[position] == "(") - (text[position] == ")")
        if depth == 0:
            return position + 1
    return len(text)
