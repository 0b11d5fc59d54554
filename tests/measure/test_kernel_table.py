"""Kernels summed up, and a device's idle time split by what it waited for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.measure.chrome_trace import Event
from deepstone.measure.kernel_table import busy_s, idle_s, totals


def event(start_s: float, end_s: float, name: str = "k", category: str = "kernel", layers: tuple[str, ...] = ()):
    duration_s = end_s - start_s
    return Event(
        name=name, category=category, thread="one", start_s=start_s, duration_s=duration_s, args={"layers": layers}
    )


def test_events_of_one_name_are_one_line_and_the_longest_comes_first():
    events = [event(0, 1, "a", layers=("x",)), event(1, 5, "b"), event(5, 7, "a", layers=("y", "x")), event(7, 8, "b")]
    first, second = totals(events)
    assert first == {"name": "b", "kind": "kernel", "count": 2, "total_s": 5}
    assert second == {"name": "a", "kind": "kernel", "count": 2, "total_s": 3, "layers": ["x", "y"]}


def test_a_kernel_and_a_copy_of_one_name_stay_apart():
    assert [entry["kind"] for entry in totals([event(0, 2), event(2, 3, category="copy")])] == ["kernel", "copy"]


def test_what_runs_at_once_is_busy_once():
    assert busy_s([event(1, 3), event(2, 4), event(6, 7), event(9, 20)], start_s=0, end_s=10) == pytest.approx(5)


def test_until_the_launch_the_device_waits_for_the_host():
    kernels = [event(1, 3), event(4, 5), event(9, 10)]
    launched_s = {0: 0.5, 1: 2.0, 2: 8.0}
    split = idle_s(kernels, launched_s, start_s=0, end_s=12)
    assert split == pytest.approx({"waiting for the host": 0.5 + 3.0 + 2.0, "between kernels": 0.5 + 1.0 + 1.0})


def test_without_every_launch_nothing_is_said():
    assert "absent" in idle_s([event(1, 3), event(4, 5)], {0: 0.5}, start_s=0, end_s=12)


times = st.integers(0, 100).map(float)


@given(st.lists(st.tuples(times, times, times), max_size=12))
def test_idle_parts_and_busy_time_are_the_whole(drawn: list[tuple[float, float, float]]):
    kernels = [event(min(a, b), max(a, b)) for a, b, _ in drawn]
    launched_s = {number: min(launch, kernels[number].start_s) for number, (_, _, launch) in enumerate(drawn)}
    split = idle_s(kernels, launched_s, start_s=-10, end_s=110)
    assert min(split.values()) >= 0
    assert sum(split.values()) + busy_s(kernels, start_s=-10, end_s=110) == pytest.approx(120)
