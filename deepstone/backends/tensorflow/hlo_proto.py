"""Reads a compiled program as XLA puts it into a profile."""

from __future__ import annotations

from tensorflow.compiler.xla.service import hlo_pb2  # pyright: ignore[reportMissingTypeStubs]

from deepstone.backends.hlo import Instruction, Program


def program_of(proto: bytes) -> Program:
    module = hlo_pb2.HloProto.FromString(proto).hlo_module
    computations = {computation.id: computation.name for computation in module.computations}
    return Program({computation.name: _instructions(computation, computations) for computation in module.computations})


def _instructions(computation: hlo_pb2.HloComputationProto, computations: dict[int, str]) -> list[Instruction]:
    names = {instruction.id: instruction.name for instruction in computation.instructions}
    return [
        Instruction(
            name=instruction.name,
            opcode=instruction.opcode,
            operation=instruction.metadata.op_name,
            operands=tuple(names[operand] for operand in instruction.operand_ids),
            calls=tuple(computations[called] for called in instruction.called_computation_ids),
            position=instruction.parameter_number if instruction.opcode == "parameter" else -1,
            root=instruction.id == computation.root_id,
        )
        for instruction in computation.instructions
    ]
