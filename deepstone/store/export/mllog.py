"""MLPerf's log lines, `:::MLLOG {…}`, for tools that read them. They describe a measurement, not a submission.

A line's `metadata` names a file and a line. There is no call site, so it names the file of the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from deepstone.absent import Absent
from deepstone.results.record import Record
from deepstone.store.export.jsonl import prepared

_POINT, _START, _END = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"
_STARTUP: Final = ("import_s", "build_s", "first_step_s")


def export_mllog(records: Iterable[Record], *, redact: bool = True) -> Iterator[str]:
    """Yield the events of each run in order: its description, start-up, timed steps and results."""
    for record in prepared(records, redact=redact):
        yield from _events(record)


def _events(record: Record) -> Iterator[str]:
    line = _Line(record)
    workload, requested = record.workload, record.setup.requested
    init_ms = round(datetime.fromisoformat(record.started_at).timestamp() * 1000)
    run_ms = init_ms + round(1000 * _startup_s(record))
    stop_ms = run_ms + round(1000 * _timed_s(record))
    yield line(init_ms, _POINT, "submission_benchmark", workload.model)
    yield line(init_ms, _POINT, "submission_platform", _platform(record))
    yield line(init_ms, _POINT, "global_batch_size", workload.batch)
    if "seed" in requested:
        yield line(init_ms, _POINT, "seed", requested["seed"])
    if workload.phase == "train" and "optimizer" in requested:
        yield line(init_ms, _POINT, "opt_name", requested["optimizer"])
    yield line(init_ms, _POINT, "deepstone_setup", dict(requested))
    yield line(init_ms, _START, "init_start", None)
    yield line(run_ms, _END, "init_stop", None)
    yield line(run_ms, _START, "run_start", None)
    summary = record.summary
    if not isinstance(summary, Absent):
        steps = sum(len(block.step_s) * block.steps_per_sample for block in record.samples.timed)
        rate = summary.samples_per_s
        ends = {"throughput_low": rate.low, "throughput_high": rate.high} if rate.has_interval else {}
        value = {"throughput": rate.median, **ends, "step_s": summary.step_s.median}
        yield line(stop_ms, _POINT, "tracked_stats", value, step=steps)
    status = "success" if record.outcome == "ok" else "aborted"
    yield line(stop_ms, _END, "run_stop", None, status=status, outcome=record.outcome)


class _Line:
    """Writes the lines of one run."""

    def __init__(self, record: Record) -> None:
        self._metadata = {"file": f"{record.id}.json", "lineno": 1}

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
    if isinstance(record.startup, Absent):
        return 0.0
    known = [record.startup.get(name) for name in _STARTUP]
    return sum(value for value in known if isinstance(value, (int, float)))


def _timed_s(record: Record) -> float:
    """Return the time of all steps, including warm-up: they ran between start and stop."""
    return sum(sum(block.step_s) * block.steps_per_sample for block in record.samples.timed)


def _platform(record: Record) -> str:
    """Describe the device, as far as the record has it; MLPerf has free text here too."""
    device = record.setup.value("device") or "unknown"
    gpu = record.environment.framework_text("gpu")
    return f"{device} {gpu}" if gpu and device != "cpu" else device
