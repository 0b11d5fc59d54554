"""Runs as rows of a table, with the details of each: text, no raw samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.report.table import Value, value_of
from deepstone.report.wording import interval_words
from deepstone.results.record import Record
from deepstone.results.view import label, rate, words
from deepstone.units import digits

_IMAGES: Final = "images"
_DETAILS: Final = (
    *(
        "failure",
        "speed",
        "samples",
        "phases",
        "parallel",
        "communication",
        "account",
        "pipeline",
        "ranks",
        "rank_memory",
        "memory",
        "startup",
        "energy",
        "share_of_peak",
    ),
    *("doubts", "requested", "effective", "environment", "machine", "started_at", "repetition", "id", "command"),
)


class RunRow(Struct, frozen=True, kw_only=True):
    """A row. `rest` are labels and texts with further details. `speed` is in samples/s."""

    id: str
    started_at: str
    model: str
    framework: str
    device: str
    machine: str
    setup: str
    batch: int
    phase: str
    outcome: str
    speed: Value | None
    doubts: tuple[str, ...]
    record: Record
    rest: tuple[tuple[str, str], ...]

    @property
    def anchor(self) -> str:
        return f"run-{self.id}"

    @property
    def rate(self) -> str:
        """Return the rate of a run; a plain number counts images."""
        known, things = rate(self.record), self.record.workload.things
        if known is None:
            return ""
        return digits(known.median) if things == _IMAGES else f"{digits(known.median)} {things}/s"

    @property
    def interval(self) -> str:
        known = value_of(rate(self.record))
        return interval_words(known, digits) if isinstance(known, Value) else ""


def speed_heading(rows: Iterable[RunRow]) -> str:
    """Return the heading of the column of rates; a plain number counts images."""
    return f"{_IMAGES}/s" if {row.record.workload.things for row in rows} <= {_IMAGES} else "speed"


def run_row(record: Record, machine: str) -> RunRow:
    speed = None if isinstance(record.summary, Absent) else value_of(record.summary.samples_per_s)
    return RunRow(
        id=record.id,
        started_at=record.started_at,
        model=record.workload.model,
        framework=words(record, "framework"),
        device=words(record, "device"),
        machine=machine,
        setup=words(record, "requested"),
        batch=record.workload.batch,
        phase=record.workload.phase,
        outcome=record.outcome,
        speed=None if isinstance(speed, Absent) else speed,
        doubts=tuple(doubt.code for doubt in record.doubts),
        record=record,
        rest=tuple((label(name), text) for name in _DETAILS if (text := _detail(record, name, machine))),
    )


def _detail(record: Record, name: str, machine: str) -> str:
    if name == "machine":
        return machine
    if name == "doubts":
        return "; ".join(f"{doubt.code}: {doubt.detail}" for doubt in record.doubts)
    if name == "phases" and not isinstance(record.phases, Absent):
        return f"{words(record, name)} ({record.phases.method})"
    return words(record, name) or ("the defaults" if name == "requested" else "")
