"""Axes: each is declared once, and any text becomes a value of it or one line that says what would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.errors import UsageError
from deepstone.setups.axes import AUTO, AXES, FRAMEWORKS, ISA_ORDER, cpu_list, format_cpus

NAMED_BY_THE_DESIGN = (
    "framework device batch phase precision layout engine algorithm compile space_to_depth threads inter_threads "
    "affinity allocator wait power_limit input_grad isa dropout optimizer checkpointing input processes nodes "
    "launcher scheme servers pipeline microbatches schedule transport library collective interface overlap bucket "
    "compression accumulate seed"
)

every_axis = pytest.mark.parametrize("axis", AXES.values(), ids=AXES.keys())


def test_the_axes_are_those_of_the_design():
    assert list(AXES) == NAMED_BY_THE_DESIGN.split()


@every_axis
class TestDeclaration:
    def test_it_is_whole(self, axis):
        assert axis.help.endswith(".")
        assert axis.values
        assert set(axis.honoured_by) <= set(FRAMEWORKS) != set()

    def test_its_default_is_one_of_its_values(self, axis):
        assert axis.parse(str(axis.default)) == axis.default

    def test_closed_values_are_taken_as_they_are_listed(self, axis):
        if axis.type == "choice":
            assert [axis.parse(value) for value in axis.values] == list(axis.values)
            assert [axis.parse(value.upper()) for value in axis.values] == list(axis.values)

    def test_nothing_is_no_value(self, axis):
        with pytest.raises(UsageError, match=f"^{axis.name}=: "):
            axis.parse("")

    @given(text=st.text())
    def test_any_text_is_a_value_or_one_line(self, axis, text: str):
        try:
            value = axis.parse(text)
        except UsageError as error:
            value, message = axis.default, str(error)
        else:
            message = f"{axis.name}="
        assert axis.parse(str(value)) == value
        assert type(value) in (str, int)
        assert message.startswith(f"{axis.name}=")
        assert message.isprintable()


TAKEN: dict[str, dict[str, str | int]] = {
    "batch": {"32": 32, "007": 7, str(2**20): 2**20},
    "seed": {"0": 0},
    "threads": {"auto": AUTO, "4096": 4096},
    "device": {"gpu": "gpu:0", "GPU:1": "gpu:1", "cuda": "gpu:0", "cuda:3": "gpu:3", "gpu:007": "gpu:7"},
    "affinity": {"3+0-2": "0-3", "0+2+4-5": "0+2+4-5", "auto": AUTO},
    "framework": {"torch@2.6.0+cpu": "torch@2.6.0+cpu"},
    "layout": {"NHWC": "nhwc"},
}


@pytest.mark.parametrize(
    ("name", "text", "value"), [(name, text, value) for name, each in TAKEN.items() for text, value in each.items()]
)
def test_taken(name: str, text: str, value: str | int):
    assert AXES[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "texts", "says"),
    [
        ("batch", ["0", "-1", "1e3", "1048577", "auto"], "must be a whole number from 1 to 1048576"),
        ("threads", ["0"], "from 1 to 4096 or auto"),
        ("seed", ["2147483648"], "from 0 to 2147483647"),
        ("layout", ["nhcw"], "did you mean nhwc"),
        ("precision", ["fp16"], "did you mean .*fp16-mixed"),
        ("precision", ["double"], "known: auto, bf16"),
        ("phase", ["auto"], "not a value of phase"),
        ("device", ["tpu"], r"did you mean .*gpu"),
        ("device", ["gpu:-1"], "not a value of device"),
        ("affinity", ["3-1", "0,1", "all"], "must be CPU numbers"),
        ("framework", ["tourch"], "did you mean torch"),
        ("framework", ["torch@", "torch@../x"], "after @ comes a version"),
        ("framework", ["auto@1"], "no such framework"),
    ],
)
def test_refused(name: str, texts: list[str], says: str):
    for text in texts:
        with pytest.raises(UsageError, match=says):
            AXES[name].parse(text)


@given(cpus=st.sets(st.integers(0, 9999), min_size=1))
def test_lists_of_cpus_go_there_and_back(cpus: set[int]):
    text = format_cpus(list(cpus))
    assert cpu_list(text) == sorted(cpus)
    assert AXES["affinity"].parse(text) == text


def test_runs_of_cpus_are_written_short():
    assert format_cpus([5, 0, 1, 2, 8, 9]) == "0-2+5+8-9"


def test_instruction_sets_come_from_narrow_to_wide():
    assert len(set(ISA_ORDER)) == len(ISA_ORDER)
    narrow_to_wide = ["sse41", "avx2", "avx512_core", "avx512_core_bf16", "avx512_core_amx", "avx10_2"]
    assert sorted(narrow_to_wide, key=ISA_ORDER.index) == narrow_to_wide
