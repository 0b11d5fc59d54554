"""JSONL: whole records and findings, which can be imported again; redacted unless told otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from deepstone.results import codec
from deepstone.results.findings import Finding
from deepstone.results.record import Record
from deepstone.results.redact import PrivateNames, redact_finding, redact_record
from deepstone.store.rows import Filters

_COLUMNS: Final = ("model", "framework", "device", "batch", "phase", "outcome")


def prepared(records: Iterable[Record], *, redact: bool) -> Iterator[Record]:
    """Records as they may leave the house: without the names of host, user and paths, unless told otherwise."""
    names = PrivateNames.of_this_machine() if redact else None
    for record in records:
        yield record if names is None else redact_record(record, names)


def export_jsonl(records: Iterable[Record], *, redact: bool = True) -> Iterator[str]:
    """One line per run, each a whole record."""
    for record in prepared(records, redact=redact):
        yield codec.encode(record).decode() + "\n"


def export_findings(findings: Iterable[Finding], *, redact: bool = True) -> Iterator[str]:
    """One line per finding, each whole."""
    names = PrivateNames.of_this_machine() if redact else None
    for finding in findings:
        yield codec.encode(finding if names is None else redact_finding(finding, names)).decode() + "\n"


def matching(findings: Iterable[Finding], filters: Filters) -> Iterator[Finding]:
    """Those that have every value asked for."""
    asked = {name: str(value) for name in _COLUMNS if (value := getattr(filters, name)) is not None}
    asked |= filters.axes
    for finding in findings:
        if filters.job is None and all(_fits(finding, name, value) for name, value in asked.items()):
            yield finding


def _fits(finding: Finding, name: str, value: str) -> bool:
    if name in ("model", "outcome"):
        return str(getattr(finding, name)) == value
    if finding.setup is None:
        return False
    found = {finding.setup.value(name), str(finding.setup.requested.get(name, ""))}
    return value in (found if name != "framework" else found | {each.partition("@")[0] for each in found})
