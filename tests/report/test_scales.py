"""Axes hold what they show, and their ticks say where they stand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.report.labels import Box, label_spots
from deepstone.report.palette import heat, readable_on
from deepstone.report.scales import linear_scale, log_scale
from deepstone.report.table import Unit
from deepstone.report.wording import harmless, shortened, wrapped_name

values = st.lists(st.floats(-1e20, 1e20).filter(lambda value: value == 0 or abs(value) > 1e-20), min_size=1, max_size=6)
units = st.sampled_from(Unit)


@given(unit=units, values=values)
def test_a_linear_axis(unit: Unit, values: list[float]) -> None:
    scale = linear_scale(unit, values)
    assert scale.low <= min(values)
    assert scale.high >= max(values)
    assert scale.low < scale.high
    room = (scale.high - scale.low) * 1e-6
    assert all(scale.low - room <= at <= scale.high + room for at in scale.ticks)
    assert 2 <= len(scale.ticks) <= 12
    assert len(set(scale.ticks.values())) == len(scale.ticks)


@given(unit=units, values=st.lists(st.floats(1e-25, 1e25), min_size=1, max_size=6))
def test_a_logarithmic_axis(unit: Unit, values: list[float]) -> None:
    scale = log_scale(unit, values)
    assert 0 < scale.low < min(values)
    assert scale.high > max(values)
    assert 1 <= len(scale.ticks) <= 12
    assert len(set(scale.ticks.values())) == len(scale.ticks)


@pytest.mark.parametrize(
    ("unit", "largest", "named", "texts"),
    [
        (Unit.SECONDS, 0.0123, "ms", ["0", "2", "4", "6", "8", "10", "12"]),
        (Unit.SECONDS, 3.6, "s", ["0", "0.5", "1", "1.5", "2", "2.5", "3", "3.5"]),
        (Unit.BYTES, 3 * 2**30, "GiB", ["0", "0.5", "1", "1.5", "2", "2.5", "3"]),
    ],
)
def test_ticks_are_round_in_the_unit_shown(unit: Unit, largest: float, named: str, texts: list[str]) -> None:
    scale = linear_scale(unit, [largest])
    assert scale.unit == named
    assert list(scale.ticks.values()) == texts


def test_ticks_of_a_logarithmic_axis() -> None:
    wide = log_scale(Unit.FLOPS_PER_S, [1e9, 3e12])
    assert list(wide.ticks.values()) == ["1 G", "10 G", "100 G", "1 T"]
    narrow = log_scale(Unit.FLOPS_PER_BYTE, [30, 90])
    assert list(narrow.ticks.values()) == ["20", "30", "50", "70", "100"]


spots = st.tuples(st.floats(0, 500), st.floats(0, 300))


@given(points=st.lists(spots, max_size=25), width=st.floats(5, 80))
def test_names_cover_neither_each_other_nor_a_point(points: list[tuple[float, float]], width: float) -> None:
    bounds = Box(0, 0, 500, 300)
    found = label_spots(points, [(width, 12.0)] * len(points), bounds=bounds)
    boxes = [box for box in found if box is not None]
    assert all(box.within(bounds) for box in boxes)
    assert not any(one.touches(other) for at, one in enumerate(boxes) for other in boxes[at + 1 :])
    assert not any(box.touches(Box(x, y, x, y)) for box in boxes for x, y in points)


def test_a_lone_point_has_its_name() -> None:
    assert label_spots([(250, 150)], [(40, 12)], bounds=Box(0, 0, 500, 300))[0] is not None


@given(ratio=st.floats(1, 1e6))
def test_text_can_be_read_on_every_cell(ratio: float) -> None:
    assert readable_on(heat(ratio)) in ("#000000", "#FFFFFF")
    assert _contrast(heat(ratio), readable_on(heat(ratio))) >= 4


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@given(text=st.text(max_size=400))
def test_names_are_harmless(text: str) -> None:
    assert harmless(text).isprintable()
    assert len(harmless(text)) <= 300


@given(text=st.text(min_size=1), room=st.integers(2, 40))
def test_a_name_fits_its_room(text: str, room: int) -> None:
    short = shortened(text, room)
    assert len(short) <= room
    assert short[0] == text[0]
    assert short == text or "…" in short


def test_a_name_breaks_where_its_words_end() -> None:
    assert wrapped_name("IMPLICIT_PRECOMP_GEMM", 14) == ["IMPLICIT_", "PRECOMP_GEMM"]
    assert len(wrapped_name("x" * 500, 14)) == 3


def test_a_logarithmic_axis_of_times_has_a_unit_that_fits() -> None:
    scale = log_scale(Unit.SECONDS, [0.0004, 0.003])
    assert scale.unit == "ms"
    assert {"1", "2"} <= set(scale.ticks.values())
    assert all(scale.low <= at <= scale.high for at in scale.ticks)
