"""Compiled programs as XLA prints them: read, and every instruction given to the layer that it came from."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.backends.owners import Owner, Scopes
from deepstone.backends.xla.owners import InstructionOwners, leaves
from deepstone.backends.xla.profile import Kernel
from deepstone.backends.xla.program import Instruction, Program, program_of

# From XLA's CPU compiler, shortened: the gradient of conv2's weights lost its name when its operands were swapped, and
# the update that uses it has taken in the transpose that turns it back.
RECORDED = (Path(__file__).parent / "recorded_xla_cpu.hlo").read_text()

LAYERS = ("conv1", "conv2", "relu1", "pool")


@pytest.fixture(scope="module")
def program() -> Program:
    return program_of(RECORDED)


@pytest.fixture(scope="module")
def owners(program: Program) -> InstructionOwners:
    return InstructionOwners(program, Scopes(LAYERS))


def layer(name: str, part: str = "forward") -> Owner:
    return Owner(part=part, name=name)


UPDATE = Owner(part="update")


class TestReading:
    def test_every_instruction_is_there_once(self, program: Program):
        lines = [line for line in RECORDED.splitlines() if line.startswith("  ")]
        assert len(program.instructions) == len(lines)

    def test_what_an_instruction_is_made_of(self, program: Program):
        fusion = program.instructions["copy_add_fusion"]
        assert fusion.opcode == "fusion"
        assert fusion.operands == ("ynn_fusion", "slots_2_.1")
        assert fusion.calls == ("fused_computation.25",)
        assert fusion.operation == "jit(train)/optimizer_update/add"
        assert program.instructions["param_1.53"].position == 1
        assert program.instructions["tuple.4"].root

    def test_types_with_brackets_and_names_with_quotes(self, program: Program):
        call = program.instructions["cudnn-conv.1"]
        assert call.opcode == "custom-call"
        assert call.operands == ("images.1", "copy.16")
        assert 'conv \\"quoted\\"' in call.operation

    @given(st.text())
    def test_any_text_is_survived(self, text: str):
        program_of(text)

    @given(st.integers(0, len(RECORDED)), st.integers(0, len(RECORDED)), st.text(max_size=5))
    def test_any_damage_is_survived(self, start: int, end: int, put_in: str):
        damaged = RECORDED[: min(start, end)] + put_in + RECORDED[max(start, end) :]
        read = program_of(damaged)
        whole = InstructionOwners(read, Scopes(LAYERS))
        for name in read.instructions:
            assert sum(whole.of(name).values()) > 0


class TestOwners:
    def test_a_fusion_is_shared_by_its_operations(self, owners: InstructionOwners):
        assert owners.of("broadcast_maximum_fusion") == {layer("conv1"): 1, layer("relu1"): 1}
        assert owners.of("copy_add_fusion") == {UPDATE: 2, layer("conv2", "backward"): 1}

    def test_a_convolution_without_a_name_is_its_user_s_across_fusions(self, owners: InstructionOwners):
        assert owners.of("ynn_fusion") == {layer("conv2", "backward"): 1}

    def test_what_fills_with_zeros_is_for_whoever_starts_from_them(self, owners: InstructionOwners):
        assert owners.of("wrapped_broadcast") == {layer("pool"): 1}

    def test_a_copy_for_one_layer_is_its_own(self, owners: InstructionOwners):
        assert owners.of("copy.16") == {layer("conv1"): 1}

    def test_a_reduction_is_one_operation(self, owners: InstructionOwners):
        assert owners.of("reduce.1") == {layer("pool"): 1}

    def test_a_library_s_call_goes_by_its_name(self, owners: InstructionOwners):
        assert owners.of("cudnn-conv.1") == {layer("conv1"): 1}

    def test_what_no_layer_has_is_named(self, owners: InstructionOwners):
        assert owners.of("split.1") == {Owner(part="other", name="random numbers"): 1}
        assert owners.of("sum.1") == {Owner(part="other", name="sums of gradients"): 1}
        assert owners.of("not there") == {Owner(part="other", name="unknown to the program"): 1}

    def test_layers_of_a_program_are_listed(self, owners: InstructionOwners):
        forward = {layer("conv1"), layer("relu1"), layer("pool")}
        assert owners.of_layers() == forward | {layer("conv2", "backward")}


def chained(names: list[str]) -> Program:
    """Each instruction uses the one before it; the last alone has a name."""
    instructions = [
        Instruction(
            name=f"i{number}",
            opcode="add",
            operation=f"jit(f)/{name}" if name else "",
            operands=(f"i{number - 1}",) if number else (),
        )
        for number, name in enumerate(names)
    ]
    return Program({"main": instructions})


@given(st.lists(st.sampled_from(["", "layer_conv1/add", "layer_conv2/add"]), min_size=1, max_size=30))
def test_an_instruction_without_a_name_is_for_the_next_that_has_one(names: list[str]):
    owners = InstructionOwners(chained(names), Scopes(LAYERS))
    for number in range(len(names)):
        following = next((name for name in names[number:] if name), None)
        (owner,) = owners.of(f"i{number}")
        assert owner.name == (following[6:11] if following else "unnamed by XLA")


def test_forward_computed_again_inside_backward_is_backward():
    inside = [
        Instruction(name="a", opcode="maximum", operation="jit(f)/jvp(layer_relu1)/max"),
        Instruction(name="b", opcode="select", operation="jit(f)/transpose(jvp(layer_relu1))/select"),
        Instruction(name="c", opcode="maximum", operation="jit(f)/jvp(layer_pool)/max"),
        Instruction(name="d", opcode="add", operation="jit(f)/optimizer_update/add"),
    ]
    fusion = Instruction(name="fusion", opcode="fusion", operation="", calls=("inside",))
    owners = InstructionOwners(Program({"inside": inside, "main": [fusion]}), Scopes(LAYERS))
    assert owners.of("fusion") == {layer("relu1", "backward"): 2, layer("pool", "backward"): 1, UPDATE: 1}


def test_a_copy_for_several_layers_is_nobody_s():
    shared = Instruction(name="copy", opcode="copy", operation="")
    users = [
        Instruction(name=f"use{number}", opcode="add", operation=f"layer_conv{number}/add", operands=("copy",))
        for number in (1, 2)
    ]
    owners = InstructionOwners(Program({"main": [shared, *users]}), Scopes(LAYERS))
    assert owners.of("copy") == {Owner(part="other", name="copies"): 1}


def test_a_loop_is_not_counted_beside_what_it_runs():
    body = [Instruction(name="step", opcode="add", operation="layer_conv1/add", root=True)]
    loop = Instruction(name="while.1", opcode="while", operation="layer_conv1/while", calls=("body", "condition"))
    program = Program({"body": body, "main": [loop]})

    def kernel(name: str) -> Kernel:
        return Kernel(number=0, name=name, instruction=name, run=1, kind="kernel", thread="one", start_s=0.0, end_s=1.0)

    assert leaves([kernel("while.1"), kernel("step")], program) == [kernel("step")]
    assert leaves([kernel("while.1")], program) == [kernel("while.1")]
