"""Where whiskers lie: those of one stacked bar never cover each other, and a lone one is in the middle of its bar."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from deepstone.report.bar_places import Whisker, whiskers
from deepstone.report.panels import Axis, BarChart, BarRow, Segment, Series
from deepstone.report.table import Unit, Value

SERIES = tuple(Series(name=name, colour="#000000") for name in ("forward", "backward", "update"))


def chart(*lengths: tuple[float, float, float]) -> BarChart:
    """One bar of stacked pieces: low, middle and high of each."""
    segments = tuple(
        Segment(series=at % len(SERIES), value=Value(middle=middle, low=low, high=high, n=3))
        for at, (low, middle, high) in enumerate(lengths)
    )
    return BarChart(
        title="time",
        axis=Axis(label="time", unit=Unit.SECONDS),
        series=SERIES,
        rows=(BarRow(label="conv1", bars=(segments,)),),
    )


def test_whiskers_far_apart_lie_in_the_middle() -> None:
    found = whiskers(chart((0.9, 1.0, 1.1), (1.9, 2.0, 2.1)))
    assert [each.middle for each in found] == [0.0, 0.0]
    assert [(each.low, each.high) for each in found] == [(0.9, 1.1), (2.9, 3.1)]


def test_whiskers_that_would_cover_each_other_lie_side_by_side() -> None:
    one, other = whiskers(chart((0.2, 1.0, 3.0), (0.0, 0.5, 2.0)))
    assert one.middle < 0 < other.middle
    assert abs(other.middle) < one.piece.thickness / 2


@given(st.lists(st.tuples(*[st.floats(0, 5)] * 3).map(sorted).map(tuple), min_size=1, max_size=6))
def test_no_two_whiskers_of_a_bar_cover_each_other(lengths: list[tuple[float, float, float]]) -> None:
    found = whiskers(chart(*lengths))
    assert len(found) == len(lengths)
    assert not any(_covers(one, other) for one, other in combinations(found, 2))
    assert all(abs(each.middle) <= each.piece.thickness / 2 for each in found)


def _covers(one: Whisker, other: Whisker) -> bool:
    return one.middle == other.middle and one.low <= other.high and other.low <= one.high
