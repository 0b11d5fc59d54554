"""What we write as MLPerf's log is read by the rules of MLPerf's own logger: prefix, keys, kinds of events, pairs."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from depth import examples
from factory import WARMUP, JsonRecord, make_record, typed
from hostile import records
from hypothesis import given

from deepstone.store.export.mllog import export_mllog

KEYS = ["namespace", "time_ms", "event_type", "key", "value", "metadata"]


def events(*runs: JsonRecord, redact: bool = False) -> list[dict[str, Any]]:
    """Strictly: a line that is not exactly such an event is an error."""
    found: list[dict[str, Any]] = []
    opened: list[str] = []
    text = "".join(export_mllog(map(typed, runs), redact=redact))
    assert text.isascii()
    for line in text.split("\n")[:-1]:
        match = re.fullmatch(r":::MLLOG (\{.*\})", line)
        assert match, line
        event = json.loads(match[1])
        assert list(event) == KEYS
        assert event["namespace"] == ""
        assert isinstance(event["time_ms"], int)
        assert isinstance(event["metadata"]["file"], str)
        assert isinstance(event["metadata"]["lineno"], int)
        if event["event_type"] == "INTERVAL_START":
            opened.append(event["key"].removesuffix("_start"))
        elif event["event_type"] == "INTERVAL_END":
            assert opened.pop() == event["key"].removesuffix("_stop")
        else:
            assert event["event_type"] == "POINT_IN_TIME"
        found.append(event)
    assert not opened
    return found


def by_key(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {event["key"]: event for event in found}


def test_a_run_tells_what_it_was_and_what_it_gave():
    found = events(make_record(model="resnet50", batch=8, step_s=0.5, steps=4))
    assert [event["time_ms"] for event in found] == sorted(event["time_ms"] for event in found)
    told = by_key(found)
    assert told["submission_benchmark"]["value"] == "resnet50"
    assert told["global_batch_size"]["value"] == 8
    assert told["tracked_stats"]["value"]["throughput"] == pytest.approx(16, rel=0.01)
    assert told["tracked_stats"]["metadata"]["step"] == 4 + WARMUP
    assert told["run_stop"]["metadata"]["status"] == "success"
    assert told["init_stop"]["time_ms"] - told["init_start"]["time_ms"] == 1750  # import and build
    timed_ms = told["run_stop"]["time_ms"] - told["run_start"]["time_ms"]
    assert timed_ms == pytest.approx((4 + 2 * WARMUP) * 500, rel=0.01)  # warm-up takes twice as long a step


def test_a_failed_run_is_aborted_and_has_no_throughput():
    told = by_key(events(make_record(outcome="crashed")))
    assert "tracked_stats" not in told
    assert told["run_stop"]["metadata"]["status"] == "aborted"
    assert told["run_stop"]["metadata"]["outcome"] == "crashed"


def test_runs_follow_each_other():
    found = events(make_record(batch=1), make_record(batch=2))
    assert [event["value"] for event in found if event["key"] == "global_batch_size"] == [1, 2]


def test_it_is_redacted_unless_told_not_to():
    record: Any = make_record()
    record["setup"]["effective"]["device"] = {"value": "gpu:0", "source": "set"}
    record["environment"]["framework"]["gpu"] = "node01's GPU"
    assert "node01" not in "".join(export_mllog(map(typed, [record])))
    assert "node01" in "".join(export_mllog(map(typed, [record]), redact=False))


@given(records())
@examples(60)
def test_whatever_a_model_is_called(record: JsonRecord):
    assert by_key(events(record))["submission_benchmark"]["value"] == record["workload"]["model"]
