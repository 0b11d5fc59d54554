"""What `deepstone layers` found for one framework, as rules and figures read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from deepstone.measure.statistics import Quantity
from deepstone.papers.place import Place, place_of_finding


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerRow:
    """Times in place; where there are none, alone. None where the layer does nothing in that pass."""

    name: str
    op: str
    forward_s: Quantity | None
    backward_s: Quantity | None
    alone_forward_s: Quantity | None  # the layer by itself
    alone_backward_s: Quantity | None
    beside: str = ""  # what its times alone hold that a step does not do

    def time_s(self, part: str) -> Quantity | None:
        return self.forward_s if part == "forward" else self.backward_s


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerTable:
    id: str
    model: str
    batch: int
    phase: str
    framework: str
    setup: Mapping[str, Any]  # effective values
    asked: Mapping[str, Any]
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


def tables_of(finding: Mapping[str, Any], id: str) -> Iterator[LayerTable]:
    """One for each framework of a finding that ran."""
    frameworks = finding.get("frameworks")
    reports = cast(dict[str, Any], frameworks).values() if isinstance(frameworks, dict) else [finding]
    for report in reports:
        place = place_of_finding(report)
        if place is not None and isinstance(report.get("layers"), list) and report.get("outcome", "ok") == "ok":
            yield _table(report, id, place)


def _table(report: Mapping[str, Any], id: str, place: Place) -> LayerTable:
    workload, setup = report["workload"], report["setup"]
    effective = {axis: effect["value"] for axis, effect in setup["effective"].items()}
    peaks = cast(Mapping[str, Any], report.get("peaks", {}))  # absent, or what the bounds rest on
    return LayerTable(
        id=id,
        model=workload["model"],
        batch=workload["batch"],
        phase=workload["phase"],
        framework=_release(setup["requested"], effective).replace("@", " "),
        setup=effective,
        asked=setup["requested"],
        started_at=str(report.get("started_at", "")),
        place=place,
        rows=tuple(_row(row) for row in report["layers"]),
        copy_bytes_per_s=quantity(peaks.get("bytes_per_s", {}).get("copy")),
    )


def _release(asked: Mapping[str, Any], effective: Mapping[str, Any]) -> str:
    """As it was asked for where that names a version: two builds of one version are two frameworks here."""
    wanted = str(asked.get("framework", ""))
    return wanted if "@" in wanted else str(effective.get("framework", ""))


def _row(row: Mapping[str, Any]) -> LayerRow:
    alone = row.get("isolated", {})
    return LayerRow(
        name=row["name"],
        op=row["op"],
        forward_s=quantity(row["forward_s"]),
        backward_s=quantity(row["backward_s"]),
        alone_forward_s=quantity(alone.get("forward_s")),
        alone_backward_s=quantity(alone.get("backward_s")),
        beside=str(alone.get("beside", "")),
    )


def quantity(value: Any) -> Quantity | None:
    """None where it is absent."""
    if not isinstance(value, Mapping) or "median" not in value:
        return None
    return Quantity(**cast(Mapping[str, Any], value))
