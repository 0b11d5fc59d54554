"""Events summed up, a device's idle time split by what it waited for, and the file that Chrome and Perfetto open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.trace.events import Event, busy_s, idle_s, totals, write_chrome_trace


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


def timed(name: str, start_s: float, duration_s: float, thread: str = "one") -> Event:
    return Event(
        name=name, category="kernel", thread=thread, start_s=start_s, duration_s=duration_s, args={"layers": [name]}
    )


def test_events_are_complete_ones_in_microseconds_from_the_first(tmp_path: Path):
    path = tmp_path / "trace.json"
    write_chrome_trace(str(path), [timed("b", 1e9 + 0.003, 0.5, "two"), timed("a", 1e9 + 0.001, 0.0015)])
    written = json.loads(path.read_text())["traceEvents"]
    named = {entry["args"]["name"]: entry["tid"] for entry in written if entry["ph"] == "M"}
    a, b = [entry for entry in written if entry["ph"] == "X"]
    assert (a["name"], a["cat"], a["tid"], a["ts"]) == ("a", "kernel", named["one"], 0.0)
    assert a["dur"] == pytest.approx(1500.0)
    assert a["args"] == {"layers": ["a"]}
    assert (b["name"], b["tid"]) == ("b", named["two"])
    assert b["ts"] == pytest.approx(2000.0, abs=1.0)
    assert b["dur"] == pytest.approx(5e5)


def test_a_trace_of_nothing_is_one(tmp_path: Path):
    write_chrome_trace(str(tmp_path / "trace.json"), [])
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"] == []
