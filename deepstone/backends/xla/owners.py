"""Finds the layers that the instructions of a compiled program belong to, by the layer names in their operations."""

from __future__ import annotations

import re
from collections.abc import Sequence

from deepstone.backends.owners import Owner, Scopes, owner_of
from deepstone.backends.xla.profile import Kernel
from deepstone.backends.xla.program import Instruction, Program

# Descriptions for users of how time is divided.
SHARING = (
    "a kernel that XLA fused from the operations of several layers goes to the one whose convolution or matrix product "
    "is in it, or else is shared by how many of its operations come from each; what a kernel of the backward pass "
    "computes again of forward is backward; what XLA added without a name (copies, transposes) goes to the layer that "
    "it was made for, if that is one"
)

_RANDOM = re.compile(r"random|threefry|rng")
_COPYING = frozenset({"copy", "copy-start", "copy-done", "transpose"})


class InstructionOwners:
    """The owners of the instructions of one program, cached."""

    def __init__(self, program: Program, scopes: Scopes) -> None:
        self._program = program
        self._scopes = scopes
        self._known: dict[str, dict[Owner, float]] = {}

    def of(self, name: str) -> dict[Owner, float]:
        """Return the owners of an instruction with their weights."""
        if name not in self._known:
            self._known[name] = self._found(name)
        return self._known[name]

    def of_layers(self) -> set[Owner]:
        """Return all layers, forward and backward, that occur in the program."""
        found = {owner_of(operation, self._scopes) for operation in self._program.operations}
        return {owner for owner in found if owner is not None and owner.is_layer}

    def _found(self, name: str) -> dict[Owner, float]:
        if name not in self._program.instructions:
            return {Owner(part="other", name="unknown to the program"): 1.0}
        weights: dict[Owner, float] = {}
        for instruction in self._program.work_of(name):
            owner = self._owner(instruction)
            weights[owner] = weights.get(owner, 0.0) + 1.0
        return _in_one_pass(weights)

    def _owner(self, instruction: Instruction) -> Owner:
        if instruction.operation:
            return owner_of(instruction.operation, self._scopes) or _unowned(instruction.operation)
        users = {owner_of(operation, self._scopes) for operation in self._program.made_for(instruction)}
        (user,) = users if len(users) == 1 else (None,)
        if user is not None:
            return user
        return Owner(part="other", name="copies" if instruction.opcode in _COPYING else "unnamed by XLA")


def _in_one_pass(weights: dict[Owner, float]) -> dict[Owner, float]:
    """Count a fused kernel as one pass: XLA may compute a part of forward again inside a kernel of backward."""
    if all(owner.part != "backward" for owner in weights):
        return weights
    merged: dict[Owner, float] = {}
    for owner, weight in weights.items():
        where = Owner(part="backward", name=owner.name) if owner.part == "forward" else owner
        merged[where] = merged.get(where, 0.0) + weight
    return merged


def _unowned(operation: str) -> Owner:
    """Return the owner of an operation whose name is not a layer's."""
    if _RANDOM.search(operation):
        return Owner(part="other", name="random numbers")
    if "add_any" in operation or "AddN" in operation:
        return Owner(part="other", name="sums of gradients")
    return Owner(part="other", name="outside layers")


def leaves(kernels: Sequence[Kernel], program: Program) -> list[Kernel]:
    """Remove loops and branches whose own instructions are among the kernels: their time would count twice."""
    seen = {kernel.instruction for kernel in kernels}
    wholes = {name for name in seen if not seen.isdisjoint(program.runs(name))}
    return [kernel for kernel in kernels if kernel.instruction not in wholes]
