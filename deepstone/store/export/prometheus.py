"""Prometheus' text format, for the textfile collector of its node exporter: the last run of every job, as gauges.

The collector takes no times, and refuses a file in which a series stands twice: the label `job_id` tells jobs apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, cast

from deepstone.records.identity import JOB_PART
from deepstone.records.schema import Record, is_absent
from deepstone.store.export.prepared import prepared
from deepstone.store.rows import axis_value

_AXES: Final = ("framework", "device", "precision", "layout", "engine")
_HELP: Final = {
    "deepstone_samples_per_second": "Samples per second, the median.",
    "deepstone_samples_per_second_low": "Samples per second, the lower end of the 95 % interval.",
    "deepstone_samples_per_second_high": "Samples per second, the upper end of the 95 % interval.",
    "deepstone_sustained_samples_per_second": "All samples by all timed seconds.",
    "deepstone_step_seconds": "Seconds of a step, the median.",
    "deepstone_step_seconds_low": "Seconds of a step, the lower end of the 95 % interval.",
    "deepstone_step_seconds_high": "Seconds of a step, the upper end of the 95 % interval.",
    "deepstone_memory_bytes": "Memory by kind, in bytes.",
    "deepstone_joules_per_step": "Energy of a step, by counter.",
    "deepstone_average_power_watts": "Average power while energy was measured, by counter.",
    "deepstone_doubts": "Number of reasons to trust the run less.",
    "deepstone_ok": "1 where the last run of the job went well, else 0.",
    "deepstone_started_timestamp_seconds": "When the run was started, in seconds since 1970.",
    "deepstone_run_info": "Always 1; the labels tell which run it was, with which outcome, in which framework.",
}


def export_prometheus(records: Iterable[Record], *, redact: bool = True) -> Iterator[str]:
    """Lines of all gauges, grouped by name as the format wants them."""
    samples: dict[str, list[str]] = {name: [] for name in _HELP}
    for record in prepared(_last_of_each_job(records), redact=redact):
        for sample in _samples(record):
            samples[sample.name].append(sample.line())
    for name, lines in samples.items():
        if lines:
            yield f"# HELP {name} {_escaped_help(_HELP[name])}\n"
            yield f"# TYPE {name} gauge\n"
            yield from lines


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sample:
    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict[str, str])

    def line(self) -> str:
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in self.labels.items())
        return f"{self.name}{{{labels}}} {self.value!r}\n"


def _last_of_each_job(records: Iterable[Record]) -> list[Record]:
    last: dict[str, Record] = {}
    for record in records:
        known = last.get(record["job"])
        if known is None or _when(known) <= _when(record):
            last[record["job"]] = record
    return list(last.values())


def _when(record: Record) -> tuple[str, int]:
    return record["started_at"], int(record["id"].rpartition("-")[2])


def _samples(record: Record) -> Iterator[_Sample]:
    labels = _labels(record)

    def gauge(name: str, value: object, **more: str) -> Iterator[_Sample]:
        if isinstance(value, (int, float)):
            yield _Sample(name=name, value=value, labels={**labels, **more})

    summary = cast(dict[str, Any], record["summary"])
    if not is_absent(summary):
        for name, key in (("deepstone_samples_per_second", "samples_per_s"), ("deepstone_step_seconds", "step_s")):
            yield from gauge(name, summary[key]["median"])
            yield from gauge(f"{name}_low", summary[key]["low"])
            yield from gauge(f"{name}_high", summary[key]["high"])
        yield from gauge("deepstone_sustained_samples_per_second", summary["sustained_samples_per_s"])
    memory = cast(dict[str, Any], record["memory"])
    for key, value in memory.items():
        yield from gauge("deepstone_memory_bytes", value, kind=key.removesuffix("_bytes"))
    energy = cast(dict[str, Any], record["energy"])
    yield from gauge("deepstone_joules_per_step", energy.get("joules_per_step"))
    yield from gauge("deepstone_average_power_watts", energy.get("average_power_w"))
    yield from gauge("deepstone_doubts", len(record["doubts"]))
    yield from gauge("deepstone_ok", int(record["outcome"] == "ok"))
    yield from gauge("deepstone_started_timestamp_seconds", datetime.fromisoformat(record["started_at"]).timestamp())
    yield from gauge("deepstone_run_info", 1, run=record["id"], outcome=record["outcome"], version=_version(record))


def _labels(record: Record) -> dict[str, str]:
    workload = record["workload"]
    return {
        "job_id": record["job"][:JOB_PART],
        "model": workload["model"],
        "batch": str(workload["batch"]),
        "phase": workload["phase"],
        **{axis: axis_value(record, axis) for axis in _AXES},
    }


def _version(record: Record) -> str:
    framework: Any = record["environment"]["framework"]
    version = "" if is_absent(framework) else framework.get("version", "")
    return version if isinstance(version, str) else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
