"""A program as XLA compiled it: which instruction came from which operation of the framework.

XLA keeps the name that the framework gave, but not everywhere: what it adds itself (copies, transposes), and what it
turns around (a convolution whose operands it swaps), has none. That was made for whoever uses it, so it is asked there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

# These run what they call. A reduction calls, too, but what it calls is how it adds.
_CALLERS = frozenset({"fusion", "call", "while", "conditional", "async-start"})
# These do no work, or work that belongs to whoever uses it.
_IDLE = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "broadcast", "iota", "after-all"})
_PRODUCTS = frozenset({"convolution", "dot"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Instruction:
    """`operation` is the name that the framework gave to what it came from; empty where XLA has none."""

    name: str
    opcode: str
    operation: str
    operands: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()  # computations
    position: int = -1  # of a parameter among its computation's
    root: bool = False  # what its computation gives


class Program:
    """The instructions of one compiled program by name; XLA gives no name twice."""

    def __init__(self, computations: Mapping[str, Sequence[Instruction]]) -> None:
        self._computations = computations
        self.instructions: dict[str, Instruction] = {}
        self._home: dict[str, str] = {}  # of each instruction, its computation
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
        """All names that the framework gave."""
        return {instruction.operation for instruction in self.instructions.values()}

    def runs(self, name: str) -> set[str]:
        """The instructions that one runs as a whole program would: those of a loop or a branch, not of a fusion."""
        instruction = self.instructions.get(name)
        if instruction is None or instruction.opcode == "fusion" or instruction.opcode not in _CALLERS:
            return set()
        return {found.name for called in instruction.calls for found in self._computations.get(called, ())}

    def work_of(self, name: str) -> list[Instruction]:
        """What an instruction does: itself or, of a fused one, what is in it and has a name.

        Where convolutions or matrix products are among that, they alone count: the rest is small beside them.
        """
        instruction = self.instructions[name]
        inside = [found for found in self._inside(instruction, set()) if found.opcode not in _IDLE]
        products = [found for found in inside if found.opcode in _PRODUCTS]
        named = [found for found in inside if found.operation]
        if products or named:
            return products or named
        return inside if inside and not instruction.operation else [instruction]

    def made_for(self, instruction: Instruction) -> set[str]:
        """The operations that use, as the first with a name, what an instruction gives."""
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
        """What an operand is called inside."""
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
