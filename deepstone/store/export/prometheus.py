"""Prometheus' text format, for the textfile collector of its node exporter: the last run of every job, as gauges.

The collector accepts no times, and refuses a file that has a series twice: the label `job_id` distinguishes jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct, field

from deepstone.absent import Absent
from deepstone.results.identity import JOB_PART, attempt_of, canonical_job
from deepstone.results.record import Record
from deepstone.store.export.jsonl import prepared

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
    """Yield the lines of all gauges, grouped by name as the format requires."""
    samples: dict[str, list[str]] = {name: [] for name in _HELP}
    for record in prepared(_last_of_each_job(records), redact=redact):
        for sample in _samples(record):
            samples[sample.name].append(sample.line())
    for name, lines in samples.items():
        if lines:
            yield f"# HELP {name} {_escaped_help(_HELP[name])}\n"
            yield f"# TYPE {name} gauge\n"
            yield from lines


class _Sample(Struct, frozen=True, kw_only=True):
    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict[str, str])

    def line(self) -> str:
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in self.labels.items())
        return f"{self.name}{{{labels}}} {self.value!r}\n"


def _last_of_each_job(records: Iterable[Record]) -> list[Record]:
    last: dict[str, Record] = {}
    for record in records:
        job = canonical_job(record)
        known = last.get(job)
        if known is None or _when(known) <= _when(record):
            last[job] = record
    return list(last.values())


def _when(record: Record) -> tuple[str, int]:
    return record.started_at, attempt_of(record.id)


def _samples(record: Record) -> Iterator[_Sample]:
    labels = _labels(record)

    def gauge(name: str, value: object, **more: str) -> Iterator[_Sample]:
        if isinstance(value, (int, float)):
            yield _Sample(name=name, value=value, labels={**labels, **more})

    summary, energy = record.summary, record.energy
    if not isinstance(summary, Absent):
        rate, step = summary.samples_per_s, summary.step_s
        for name, measured in (("deepstone_samples_per_second", rate), ("deepstone_step_seconds", step)):
            yield from gauge(name, measured.median)
            if measured.has_interval:
                yield from gauge(f"{name}_low", measured.low)
                yield from gauge(f"{name}_high", measured.high)
        yield from gauge("deepstone_sustained_samples_per_second", summary.sustained_samples_per_s)
    for key, value in () if isinstance(record.memory, Absent) else record.memory.items():
        yield from gauge("deepstone_memory_bytes", value, kind=key.removesuffix("_bytes"))
    if not isinstance(energy, Absent):
        yield from gauge("deepstone_joules_per_step", energy.joules_per_step)
        yield from gauge("deepstone_average_power_watts", energy.average_power_w)
    yield from gauge("deepstone_doubts", len(record.doubts))
    yield from gauge("deepstone_ok", int(record.outcome == "ok"))
    yield from gauge("deepstone_started_timestamp_seconds", datetime.fromisoformat(record.started_at).timestamp())
    version = record.environment.framework_text("version")
    yield from gauge("deepstone_run_info", 1, run=record.id, outcome=record.outcome, version=version)


def _labels(record: Record) -> dict[str, str]:
    workload = record.workload
    return {
        "job_id": canonical_job(record)[:JOB_PART],
        "model": workload.model,
        "batch": str(workload.batch),
        "phase": workload.phase,
        **{axis: record.setup.value(axis) for axis in _AXES},
    }


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
