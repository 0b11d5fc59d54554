"""Calls of a compiled program against what was seen to run; moments against nested intervals."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from deepstone.backends.torch.compiled import KernelCall, match_in_order
from deepstone.backends.torch.profile import Interval, innermost


def calls(*entries: tuple[str, dict[str, int]]) -> list[KernelCall]:
    return [KernelCall(name=name, layers=layers) for name, layers in entries]


class TestOrder:
    def test_the_second_run_of_a_name_is_its_second_call(self):
        program = calls(("aten::mm", {"a": 1}), ("cpp_0", {"b": 2}), ("aten::mm", {"c": 1}))
        assert match_in_order(["aten::mm", "cpp_0", "aten::mm"], program) == [{"a": 1}, {"b": 2}, {"c": 1}]

    def test_what_no_call_explains_has_no_layers(self):
        assert match_in_order(["aten::empty", "cpp_0"], calls(("cpp_0", {"a": 1}))) == [None, {"a": 1}]

    def test_kernels_under_other_names_come_from_the_calls_between(self):
        program = calls(
            ("triton_0", {"a": 1}), ("aten::convolution", {"b": 1}), ("aten::mm", {"c": 1}), ("triton_1", {"d": 3})
        )
        ran = ["triton_0", "cudnn_fprop", "gemm", "splitk", "triton_1", "memset"]
        together = {"b": 1, "c": 1}
        assert match_in_order(ran, program) == [{"a": 1}, together, together, together, {"d": 3}, None]

    def test_calls_at_the_end(self):
        program = calls(("triton_0", {"a": 1}), ("aten::mm", {"b": 1}))
        assert match_in_order(["triton_0", "gemm"], program) == [{"a": 1}, {"b": 1}]

    def test_nothing_ran(self):
        assert match_in_order([], calls(("aten::mm", {"b": 1}))) == []

    @given(st.lists(st.sampled_from("abc"), max_size=20))
    def test_a_program_that_shows_every_call_is_matched_one_to_one(self, names: list[str]):
        program = calls(*((name, {str(number): 1}) for number, name in enumerate(names)))
        assert match_in_order(names, program) == [call.layers for call in program]

    @given(st.lists(st.sampled_from("abcd"), max_size=20), st.lists(st.sampled_from("abce"), max_size=20))
    def test_every_name_gets_an_answer(self, ran: list[str], names: list[str]):
        program = calls(*((name, {name: 1}) for name in names))
        found = match_in_order(ran, program)
        assert len(found) == len(ran)
        assert all(layers is None or set(layers) <= set(names) for layers in found)


class TestNesting:
    def test_the_innermost_counts(self):
        intervals = [
            Interval(start_s=0, end_s=10, label="outer"),
            Interval(start_s=2, end_s=4, label="inner"),
            Interval(start_s=6, end_s=7, label="next"),
        ]
        assert innermost(intervals, [6.5, 1, 2, 3.9, 4, 11, -1]) == [
            "next",
            "outer",
            "inner",
            "inner",
            "outer",
            None,
            None,
        ]

    @given(st.lists(st.floats(0, 10), max_size=20), st.lists(st.floats(-1, 11), max_size=20))
    def test_neighbours_are_found_as_by_looking_at_each(self, edges: list[float], moments_s: list[float]):
        ordered = sorted(edges)
        intervals = [
            Interval(start_s=start_s, end_s=end_s, label=(start_s, end_s))
            for start_s, end_s in pairwise(ordered)
            if end_s > start_s
        ]
        for moment_s, found in zip(moments_s, innermost(intervals, moments_s), strict=True):
            around = [each.label for each in intervals if each.start_s <= moment_s < each.end_s]
            assert found == (around[0] if around else None)
