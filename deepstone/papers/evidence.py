"""The evidence for verdicts: records of runs and findings, from this store and from elsewhere.

All evidence has one order, newest first. Verdicts use the newest of several, the first of equals, and one of those with
the same id. This module decides all of that, so no rule or figure depends on the names or the order of files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeAlias, TypeVar

from msgspec import Struct

from deepstone.analysis.cases import Case, cases
from deepstone.papers.conv_lab import Lab, labs_of
from deepstone.papers.layer_table import LayerTable, known, tables_of
from deepstone.papers.place import Place, place_of_finding, place_of_record
from deepstone.results.ceilings import Ceilings
from deepstone.results.findings import Finding
from deepstone.results.identity import canonical_json
from deepstone.results.quantity import Quantity
from deepstone.results.record import Record

Named: TypeAlias = tuple[str, Finding]  # a finding with its id
_T = TypeVar("_T", Record, Finding)


class CopyRate(Struct, frozen=True, kw_only=True):
    """The fastest copy on a device, bytes read and written together."""

    id: str
    place: Place
    bytes_per_s: Quantity
    measured_with: str


class Evidence(Struct, frozen=True, kw_only=True):
    """All lists are newest first. `places` are sorted by name, those of the store first."""

    cases: tuple[tuple[Place, Case], ...]
    labs: tuple[Lab, ...]
    tables: tuple[LayerTable, ...]
    copies: tuple[CopyRate, ...]
    places: tuple[Place, ...]

    def at(self, place: Place) -> Evidence:
        """Return the evidence of this place only."""
        return Evidence(
            cases=tuple((where, case) for where, case in self.cases if where.key == place.key),
            labs=tuple(lab for lab in self.labs if lab.place.key == place.key),
            tables=tuple(table for table in self.tables if table.place.key == place.key),
            copies=tuple(copy for copy in self.copies if copy.place.key == place.key),
            places=(place,),
        )


def evidence_of(records: Iterable[Record], findings: Iterable[Named], own: Collection[Place] = ()) -> Evidence:
    """`findings` have their ids, or the name of their file if they have none.

    The order of the arguments does not matter. `own`: places that come before others.
    """
    grouped = [(place_of_record(case.record), case) for case in cases(_canonical_records(records))]
    labs: list[Lab] = []
    tables: list[LayerTable] = []
    copies: list[CopyRate] = []
    for id, finding in _canonical_findings(findings):
        labs += labs_of(finding, id)
        tables += tables_of(finding, id)
        copies += _copies(finding, id)
    copies += [
        CopyRate(id=table.id, place=table.place, bytes_per_s=table.copy_bytes_per_s, measured_with=table.framework)
        for table in tables
        if table.copy_bytes_per_s is not None
    ]
    met = [
        *(place for place, _ in grouped),
        *(lab.place for lab in labs),
        *(table.place for table in tables),
        *(copy.place for copy in copies),
    ]
    return Evidence(
        cases=tuple(grouped),
        labs=tuple(sorted(labs, key=lambda lab: lab.started_at, reverse=True)),
        tables=tuple(sorted(tables, key=lambda table: table.started_at, reverse=True)),
        copies=tuple(copies),
        places=_places(met, {place.key for place in own}),
    )


def _places(met: Iterable[Place], own: Collection[tuple[str, str]]) -> tuple[Place, ...]:
    """Return each place once, with its most complete description."""
    described: dict[tuple[str, str], Place] = {}
    for place in sorted(met, key=lambda place: (place.cores or 0, place.name)):
        described[place.key] = place
    return tuple(sorted(described.values(), key=lambda place: (place.key not in own, place.name, place.key)))


def _copies(finding: Finding, id: str) -> Iterator[CopyRate]:
    """Yield the copy rate of each device of `doctor --peaks` that has one."""
    for entry in finding.content.peaks if isinstance(finding.content, Ceilings) else ():
        place = place_of_finding(finding.environment, entry.device)
        rate = known((entry.bytes_per_s or {}).get("copy"))
        if place is not None and rate is not None:
            yield CopyRate(id=id, place=place, bytes_per_s=rate, measured_with=entry.measured_with or "")


def _canonical_records(records: Iterable[Record]) -> list[Record]:
    """Return each id once: if one machine has it in two stores, the newer run counts."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.id, []).append(record)
    chosen = [_newest(group, lambda record: record.started_at) for group in groups.values()]
    return sorted(chosen, key=lambda record: (record.started_at, record.id), reverse=True)


def _canonical_findings(findings: Iterable[Named]) -> list[Named]:
    """Return each id once, and findings without an id once even if several files have them."""
    with_id: dict[str, list[Finding]] = {}
    others: dict[tuple[str, str], str] = {}
    by_text: dict[tuple[str, str], Finding] = {}
    for name, finding in findings:
        if finding.id is not None:
            with_id.setdefault(name, []).append(finding)
        else:
            key = _started_at(finding), canonical_json(finding.to_json())
            others[key] = min(name, others.get(key, name))
            by_text[key] = finding
    named = [(name, _newest(group, _started_at)) for name, group in with_id.items()]
    named += [(others[key], by_text[key]) for key in sorted(by_text, reverse=True)]
    return sorted(named, key=lambda entry: (_started_at(entry[1]), entry[0]), reverse=True)


def _started_at(finding: Finding) -> str:
    """Return the start of a finding; if it has several parts, that of the first."""
    if finding.started_at is not None or not finding.parts:
        return finding.started_at or ""
    return min(map(_started_at, finding.parts.values()))


def _newest(group: list[_T], started_at: Callable[[_T], str]) -> _T:
    """Return one of several copies, always the same one: copies of a run may differ in what was redacted."""
    if all(each == group[0] for each in group):
        return group[0]
    return max(group, key=lambda each: (started_at(each), canonical_json(each.to_json())))
