"""Everything measured that a verdict may rest on: records of runs and findings, of this store and from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from deepstone.analysis.cases import Case, cases
from deepstone.errors import RefusedInputError, shown
from deepstone.measure.statistics import Quantity
from deepstone.papers.lab import Lab, labs_of
from deepstone.papers.layer_table import LayerTable, quantity, tables_of
from deepstone.papers.place import Place, place_of_finding, place_of_record
from deepstone.records.schema import Record


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyRate:
    """The fastest copy on a device, bytes read and written together."""

    id: str
    place: Place
    bytes_per_s: Quantity
    measured_with: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """`labs` and `tables` newest first. `places` in the order in which they were met: the store's own before others."""

    cases: tuple[tuple[Place, Case], ...]
    labs: tuple[Lab, ...]
    tables: tuple[LayerTable, ...]
    copies: tuple[CopyRate, ...]
    places: tuple[Place, ...]

    def at(self, place: Place) -> Evidence:
        """What was measured in this place alone."""
        return Evidence(
            cases=tuple((where, case) for where, case in self.cases if where.key == place.key),
            labs=tuple(lab for lab in self.labs if lab.place.key == place.key),
            tables=tuple(table for table in self.tables if table.place.key == place.key),
            copies=tuple(copy for copy in self.copies if copy.place.key == place.key),
            places=(place,),
        )


def evidence_of(records: Sequence[Record], findings: Iterable[tuple[str, Mapping[str, Any]]]) -> Evidence:
    """`findings` with their ids; for one read from a file that has none, the name of the file."""
    grouped = [(place_of_record(case.record), case) for case in cases(records)]
    labs: list[Lab] = []
    tables: list[LayerTable] = []
    copies: list[CopyRate] = []
    for id, finding in findings:
        try:
            match finding.get("kind"):
                case "conv":
                    labs += labs_of(finding, id)
                case "layers":
                    tables += tables_of(finding, id)
                case "peaks":
                    copies += _copies(finding, id)
                case _:
                    pass
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # it may come from anywhere
            written = f"is not as `deepstone {finding['kind']} --json` writes it"
            raise RefusedInputError(f"{id}: {written}: {shown(str(error) or type(error).__name__)}") from error
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
        places=tuple({place.key: place for place in reversed(met)}[key] for key in dict.fromkeys(p.key for p in met)),
    )


def _copies(finding: Mapping[str, Any], id: str) -> Iterator[CopyRate]:
    """One for each device of `doctor --peaks` whose copy was measured."""
    entries = finding.get("peaks")
    for entry in cast(list[Mapping[str, Any]], entries) if isinstance(entries, list) else []:
        place = place_of_finding({**entry, "environment": finding.get("environment", {})})
        rates = entry.get("bytes_per_s")
        rate = quantity(cast(Mapping[str, Any], rates).get("copy")) if isinstance(rates, Mapping) else None
        if place is not None and rate is not None:
            yield CopyRate(id=id, place=place, bytes_per_s=rate, measured_with=str(entry.get("measured_with", "")))
