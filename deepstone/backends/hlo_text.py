"""Reads the text in which XLA prints a compiled program.

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

from deepstone.backends.hlo import Instruction, Program

_NAME = r"%?([\w.\-]+)"
_COMPUTATION = re.compile(rf"(?:ENTRY )?{_NAME} *(?:\(.*)?\{{\s*$")
_INSTRUCTION = re.compile(rf"\s+(ROOT )?{_NAME} = (.*)")
_OPCODE = re.compile(r"\s*([\w\-]+)(?=\()")
_OPERATION = re.compile(r'metadata=\{[^{}]*?op_name="((?:[^"\\]|\\.)*)"')
_OPERAND = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(rf"\b(?:calls|to_apply|body|condition)={_NAME}")
_LISTED = re.compile(r"\b(?:branch_computations|called_computations)=\{([^}]*)\}")


def program_of(text: str) -> Program:
    """Lines that are no instruction, such as the tables of files and functions, are passed over."""
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
    """A type is one word, or several in brackets that may hold others."""
    return _closing(text, 0) if text.startswith("(") else len(text.split(" ", 1)[0])


def _closing(text: str, opening: int) -> int:
    """Just after the bracket that closes the one at `opening`."""
    depth = 0
    for position in range(opening, len(text)):
        depth += (text[position] == "(") - (text[position] == ")")
        if depth == 0:
            return position + 1
    return len(text)
