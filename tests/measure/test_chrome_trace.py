"""A written trace is one that Chrome's tracing page and Perfetto take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deepstone.measure.chrome_trace import Event, write_chrome_trace


def event(name: str, start_s: float, duration_s: float, thread: str = "one") -> Event:
    return Event(
        name=name, category="kernel", thread=thread, start_s=start_s, duration_s=duration_s, args={"layers": [name]}
    )


def test_events_are_complete_ones_in_microseconds_from_the_first(tmp_path: Path):
    path = tmp_path / "trace.json"
    write_chrome_trace(str(path), [event("b", 1e9 + 0.003, 0.5, "two"), event("a", 1e9 + 0.001, 0.0015)])
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
