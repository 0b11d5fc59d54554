"""The result of `deepstone layers` for one framework, as rules and figures read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.papers.place import Place, place_of_finding
from deepstone.results import layers
from deepstone.results.findings import Finding
from deepstone.results.parts import Value
from deepstone.results.quantity import Quantity
from deepstone.results.record import Setup


class LayerRow(Struct, frozen=True, kw_only=True):
    """Times in place, else isolated. None if the layer does nothing in that pass."""

    name: str
    op: str
    forward_s: Quantity | None
    backward_s: Quantity | None
    isolated_forward_s: Quantity | None
    isolated_backward_s: Quantity | None
    overhead: str = ""  # included in its isolated times

    def time_s(self, part: str) -> Quantity | None:
        return self.forward_s if part == "forward" else self.backward_s


class LayerTable(Struct, frozen=True, kw_only=True):
    id: str
    model: str
    batch: int
    phase: str
    framework: str
    setup: Mapping[str, str | int | float | bool]  # effective values
    asked: Mapping[str, Value]
    started_at: str
    place: Place
    rows: tuple[LayerRow, ...]
    copy_bytes_per_s: Quantity | None

    @property
    def words(self) -> str:
        precision, layout = self.setup.get("precision", ""), self.setup.get("layout", "")
        return f"{self.model}, batch {self.batch}, {self.framework} ({precision}, {layout})"

    def row(self, name: str) -> LayerRow | None:
        return next((row for row in self.rows if row.name == name), None)


def tables_of(finding: Finding, id: str) -> Iterator[LayerTable]:
    """Yield one table for each framework of a finding that ran."""
    for part in finding.leaves():
        table, workload, setup = part.content, part.workload, part.setup
        if not isinstance(table, layers.LayerTable) or part.outcome not in (None, "ok"):
            continue
        if workload is None or setup is None:
            continue
        effective = {axis: effect.value for axis, effect in setup.effective.items()}
        place = place_of_finding(part.environment, str(effective.get("device", "cpu")))
        if place is not None:
            yield LayerTable(
                id=id,
                model=workload.model,
                batch=workload.batch,
                phase=workload.phase,
                framework=_release(setup).replace("@", " "),
                setup=effective,
                asked=setup.requested,
                started_at=part.started_at or "",
                place=place,
                rows=tuple(_row(row) for row in table.layers),
                copy_bytes_per_s=_copy_rate(table),
            )


def _copy_rate(table: layers.LayerTable) -> Quantity | None:
    return None if isinstance(table.peaks, Absent) else known(table.peaks.bytes_per_s.get("copy"))


def _release(setup: Setup) -> str:
    """Return the requested framework if it names a version: two builds of one version are two frameworks here."""
    requested = str(setup.requested.get("framework", ""))
    if "@" in requested:
        return requested
    return str(setup.effective["framework"].value) if "framework" in setup.effective else ""


def _row(row: layers.LayerRow) -> LayerRow:
    isolated = None if isinstance(row.isolated, Absent) else row.isolated
    return LayerRow(
        name=row.name,
        op=row.op,
        forward_s=known(row.forward_s),
        backward_s=known(row.backward_s),
        isolated_forward_s=None if isolated is None else known(isolated.forward_s),
        isolated_backward_s=None if isolated is None else known(isolated.backward_s),
        overhead=(isolated and isolated.beside) or "",
    )


def known(value: Quantity | Absent | None) -> Quantity | None:
    """Return None for an absent value."""
    return value if isinstance(value, Quantity) else None
