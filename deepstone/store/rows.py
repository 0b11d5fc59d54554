"""One run as a row of the index, and the filters that select rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import field
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.errors import UsageError, nearest
from deepstone.results import codec
from deepstone.results.identity import canonical_job, canonical_json
from deepstone.results.record import Record
from deepstone.setups.axes import AXES, Value
from deepstone.store.layout import Damage

COLUMNS: Final = ("job", "model", "framework", "device", "phase", "outcome")
EXACT: Final = ("job", "model", "framework", "device", "batch", "phase", "outcome")
_SETUP: Final = msgspec.json.Decoder(dict[str, Value])


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """None: the record has no such value."""

    id: str
    job: str  # the name in the record
    canonical_job: str
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
    things: str  # what people count in a second: images, tokens
    things_per_s: float | None
    doubts: int
    requested: str  # the requested setup as JSON, as the record writes it
    sha256: str  # of the record that was checked

    @property
    def asked(self) -> dict[str, Value]:
        """Return the requested setup."""
        return _SETUP.decode(self.requested)


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """A row matches if it fits every filter; `axes` are compared with the requested setup, as text."""

    job: str | None = None
    model: str | None = None
    framework: str | None = None
    device: str | None = None
    batch: int | None = None
    phase: str | None = None
    outcome: str | None = None
    axes: Mapping[str, str] = field(default_factory=dict[str, str])


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The matching rows, oldest first, and every file of the store that could not be read."""

    rows: tuple[Row, ...]
    damaged: tuple[Damage, ...]


def row_of(record: Record, sha256: str | None = None) -> Row:
    """Return the row of a checked record. Without its checksum the record must be encoded again."""
    workload = record.workload
    step_s = None if isinstance(record.summary, Absent) else record.summary.step_s
    has_interval = step_s is not None and step_s.has_interval
    return Row(
        id=record.id,
        job=record.job,
        canonical_job=canonical_job(record),
        started_at=record.started_at,
        model=workload.model,
        framework=record.setup.value("framework"),
        device=record.setup.value("device"),
        batch=workload.batch,
        phase=workload.phase,
        outcome=record.outcome,
        step_s_median=None if step_s is None else step_s.median,
        step_s_low=step_s.low if step_s is not None and has_interval else None,
        step_s_high=step_s.high if step_s is not None and has_interval else None,
        samples_per_s=None if isinstance(record.summary, Absent) else record.summary.samples_per_s.median,
        things=workload.things,
        things_per_s=None
        if isinstance(record.summary, Absent)
        else (record.summary.units_per_s or record.summary.samples_per_s).median,
        doubts=len(record.doubts),
        requested=canonical_json(record.setup.requested),
        sha256=codec.sha256(record) if sha256 is None else sha256,
    )


def matches(record: Record, filters: Filters) -> bool:
    """Whether the index would find this record under these filters."""
    row = row_of(record)
    given = {name: value for name in EXACT if (value := getattr(filters, name)) is not None}
    return all(_equal(row, name, value) for name, value in given.items()) and matches_axes(row, filters)


def _equal(row: Row, name: str, value: object) -> bool:
    found = getattr(row, name)
    if name == "job":
        return value in (row.job, row.canonical_job)
    return value in (found, str(found).partition("@")[0]) if name == "framework" else value == found


def matches_axes(row: Row, filters: Filters) -> bool:
    if not filters.axes:
        return True
    requested = row.asked
    return all(str(requested.get(axis, _default(axis))) == value for axis, value in filters.axes.items())


def _default(axis: str) -> Value:
    """Return the value for a record that is older than the axis."""
    return AXES[axis].default if axis in AXES else ""


def filters_of(given: Mapping[str, object]) -> Filters:
    """Make filters from columns and axes, as in model=resnet50 layout=nhwc. Raises UsageError for another name."""
    for name in given:
        if name not in COLUMNS and name not in AXES:
            raise UsageError(f"{name}: no such column or axis; {nearest(name, {*COLUMNS, *AXES})}")
    columns = {name: str(value) for name, value in given.items() if name in COLUMNS}
    axes = {name: str(value) for name, value in given.items() if name not in COLUMNS}
    return replace(Filters(axes=axes), **columns)
