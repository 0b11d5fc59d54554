"""Spans become seconds per owner; nothing is lost and nothing counted twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.trace.timeline import Span, account

moments = st.floats(-5, 15, allow_nan=False)
weights = st.dictionaries(st.sampled_from("abcd"), st.floats(0.01, 10), min_size=1)


def span(start_s: float, end_s: float, **owners: float) -> Span[str]:
    return Span(start_s=start_s, end_s=end_s, owners=owners)


def test_spans_one_after_the_other_and_the_gap_between_them():
    found = account([span(0, 2, a=1), span(3, 4, b=1)], start_s=0, end_s=5)
    assert found.owned_s == {"a": 2, "b": 1}
    assert found.idle_s == 2


def test_what_runs_at_once_shares_the_time():
    found = account([span(0, 4, a=1), span(2, 4, b=1)], start_s=0, end_s=4)
    assert found.owned_s == {"a": 3, "b": 1}
    assert found.idle_s == 0


def test_a_fused_kernel_is_shared_by_weight():
    assert account([span(0, 3, a=2, b=1)], start_s=0, end_s=3).owned_s == pytest.approx({"a": 2, "b": 1})


def test_what_lies_outside_is_cut_off():
    found = account([span(-1, 1, a=1), span(9, 12, a=1), span(20, 21, b=1)], start_s=0, end_s=10)
    assert found.owned_s == {"a": 2}
    assert found.idle_s == 8


@given(st.lists(st.tuples(moments, moments, weights), max_size=30))
def test_the_parts_are_the_whole(entries: list[tuple[float, float, dict[str, float]]]):
    spans = [Span(start_s=min(a, b), end_s=max(a, b), owners=owners) for a, b, owners in entries]
    found = account(spans, start_s=0.0, end_s=10.0)
    assert sum(found.owned_s.values()) + found.idle_s == pytest.approx(10.0)
    assert all(seconds >= 0 for seconds in found.owned_s.values())
    covered = any(each.start_s < 10 and each.end_s > 0 and each.end_s > each.start_s for each in spans)
    assert covered or found.idle_s == 10
