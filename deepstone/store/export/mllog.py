"""MLPerf's log lines, `:::MLLOG {…}`, for the tools that read those. They tell of a measurement, not of a submission.

A line's `metadata` names a file and a line. There is no call site to name, so it is the file of the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from deepstone.records.schema import Record, is_absent
from deepstone.store.export.prepared import prepared

_POINT, _START, _END = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"
_STARTUP: Final = ("import_s", "build_s", "first_step_s")


def export_mllog(records: Iterable[Record], *, redact: bool = True) -> Iterator[str]:
    """The events of each run in the order of time: what it was, its start-up, its timed steps, what they gave."""
    for record in prepared(records, redact=redact):
        yield from _events(record)


def _events(record: Record) -> Iterator[str]:
    line = _Line(record)
    workload, requested = record["workload"], record["setup"]["requested"]
    init_ms = round(datetime.fromisoformat(record["started_at"]).timestamp() * 1000)
    run_ms = init_ms + round(1000 * _startup_s(record))
    stop_ms = run_ms + round(1000 * _timed_s(record))
    yield line(init_ms, _POINT, "submission_benchmark", workload["model"])
    yield line(init_ms, _POINT, "submission_platform", _platform(record))
    yield line(init_ms, _POINT, "global_batch_size", workload["batch"])
    if "seed" in requested:
        yield line(init_ms, _POINT, "seed", requested["seed"])
    if workload["phase"] == "train" and "optimizer" in requested:
        yield line(init_ms, _POINT, "opt_name", requested["optimizer"])
    yield line(init_ms, _POINT, "deepstone_setup", dict(requested))
    yield line(init_ms, _START, "init_start", None)
    yield line(run_ms, _END, "init_stop", None)
    yield line(run_ms, _START, "run_start", None)
    summary = record["summary"]
    if "absent" not in summary:
        steps = _steps(record)
        rate = summary["samples_per_s"]
        value = {
            "throughput": rate["median"],
            "throughput_low": rate["low"],
            "throughput_high": rate["high"],
            "step_s": summary["step_s"]["median"],
        }
        yield line(stop_ms, _POINT, "tracked_stats", value, step=steps)
    status = "success" if record["outcome"] == "ok" else "aborted"
    yield line(stop_ms, _END, "run_stop", None, status=status, outcome=record["outcome"])


class _Line:
    """Writes the lines of one run."""

    def __init__(self, record: Record) -> None:
        self._metadata = {"file": f"{record['id']}.json", "lineno": 1}

    def __call__(self, time_ms: int, event_type: str, key: str, value: object, **more: object) -> str:
        event = {
            "namespace": "",
            "time_ms": time_ms,
            "event_type": event_type,
            "key": key,
            "value": value,
            "metadata": {**self._metadata, **more},
        }
        return f":::MLLOG {json.dumps(event, allow_nan=False)}\n"


def _startup_s(record: Record) -> float:
    startup = record["startup"]
    if is_absent(startup):
        return 0.0
    known: list[Any] = [startup.get(name) for name in _STARTUP]
    return sum(value for value in known if isinstance(value, (int, float)))


def _timed_s(record: Record) -> float:
    """Warm-up steps too: they ran between the start and the stop. Ranks run at the same time, so one is counted."""
    return sum(
        sum(block["step_s"]) * block["steps_per_sample"]
        for launch in record["samples"]["launches"]
        for rank in launch["ranks"][:1]
        for block in rank["blocks"]
    )


def _steps(record: Record) -> int:
    return sum(
        len(block["step_s"]) * block["steps_per_sample"]
        for launch in record["samples"]["launches"]
        for rank in launch["ranks"][:1]
        for block in rank["blocks"]
    )


def _platform(record: Record) -> str:
    """The device in words, as far as the record tells; MLPerf has a free text here too."""
    effective, requested = record["setup"]["effective"], record["setup"]["requested"]
    device = str(effective["device"]["value"]) if "device" in effective else str(requested.get("device", "unknown"))
    framework: Any = record["environment"]["framework"]
    gpu: object = None if is_absent(framework) else framework.get("gpu")
    return f"{device} {gpu}" if isinstance(gpu, str) and device != "cpu" else device
