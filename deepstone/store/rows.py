"""One run as a line of a table: what the index holds, and how it is asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from deepstone.records.identity import canonical_json, canonical_sha256
from deepstone.records.schema import Record
from deepstone.store.layout import Damage

EXACT: Final = ("job", "model", "framework", "device", "batch", "phase", "outcome")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """None stands for what the record has not."""

    id: str
    job: str
    started_at: str
    model: str
    framework: str
    device: str
    batch: int
    phase: str
    outcome: str
    step_s_median: float | None
    step_s_low: float | None
    step_s_high: float | None
    samples_per_s: float | None
    doubts: int
    requested: str  # the requested setup as JSON
    sha256: str  # of the record that was checked


@dataclass(frozen=True, kw_only=True, slots=True)
class Filters:
    """Rows that match everything given; `axes` are compared with the requested setup, as text."""

    job: str | None = None
    model: str | None = None
    framework: str | None = None
    device: str | None = None
    batch: int | None = None
    phase: str | None = None
    outcome: str | None = None
    axes: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """The rows asked for, oldest first, and every file of the store that could not be read."""

    rows: tuple[Row, ...]
    damaged: tuple[Damage, ...]


def row_of(record: Record, sha256: str | None = None) -> Row:
    """The row of a checked record. Whoever has its checksum at hand spares us writing the record out again."""
    workload, summary = record["workload"], record["summary"]
    step_s = None if "absent" in summary else summary["step_s"]
    samples_per_s = None if "absent" in summary else summary["samples_per_s"]
    return Row(
        id=record["id"],
        job=record["job"],
        started_at=record["started_at"],
        model=workload["model"],
        framework=axis_value(record, "framework"),
        device=axis_value(record, "device"),
        batch=workload["batch"],
        phase=workload["phase"],
        outcome=record["outcome"],
        step_s_median=step_s and step_s["median"],
        step_s_low=step_s and step_s["low"],
        step_s_high=step_s and step_s["high"],
        samples_per_s=samples_per_s and samples_per_s["median"],
        doubts=len(record["doubts"]),
        requested=canonical_json(record["setup"]["requested"]),
        sha256=canonical_sha256(record) if sha256 is None else sha256,
    )


def matches(record: Record, filters: Filters) -> bool:
    """Whether the index would find this record under these filters."""
    row = row_of(record)
    given = {name: value for name in EXACT if (value := getattr(filters, name)) is not None}
    return all(_equal(row, name, value) for name, value in given.items()) and asked_for(row, filters)


def _equal(row: Row, name: str, value: object) -> bool:
    found = getattr(row, name)
    return value in (found, str(found).partition("@")[0]) if name == "framework" else value == found


def asked_for(row: Row, filters: Filters) -> bool:
    if not filters.axes:
        return True
    requested = cast(dict[str, Any], json.loads(row.requested))
    return all(str(requested.get(axis, "")) == value for axis, value in filters.axes.items())


def axis_value(record: Record, axis: str) -> str:
    """What an axis was in effect, else what was asked for, else nothing."""
    setup = record["setup"]
    if axis in setup["effective"]:
        return str(setup["effective"][axis]["value"])
    return str(setup["requested"].get(axis, ""))
