"""JSONL: whole records and findings, which can be imported again; redacted by default."""

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
    """Yield records for export; `redact` removes the names of host, user and paths."""
    names = PrivateNames.of_this_machine() if redact else None
    for record in records:
        yield record if names is None else redact_record(record, names)


def export_jsonl(records: Iterable[Record], *, redact: bool = True) -> Iterator[str]:
    """Yield one line per run, each a whole record."""
    for record in prepared(records, redact=redact):
        yield codec.encode(record).decode() + "\n"


def export_findings(findings: Iterable[Finding], *, redact: bool = True) -> Iterator[str]:
    """Yield one line per finding, each whole."""
    names = PrivateNames.of_this_machine() if redact else None
    for finding in findings:
        yield codec.encode(finding if names is None else redact_finding(finding, names)).decode() + "\n"


def matching(findings: Iterable[Finding], filters: Filters) -> Iterator[Finding]:
    """Yield the findings that match all filters."""
    required = {name: str(value) for name in _COLUMNS if (value := getattr(filters, name)) is not None}
    required |= filters.axes
    for finding in findings:
        if filters.job is None and all(_fits(finding, name, value) for name, value in required.items()):
            yield finding


def _fits(finding: Finding, name: str, value: str) -> bool:
    if name in ("model", "outcome"):
        return str(getattr(finding, name)) == value
    if finding.setup is None:
        return False
    found = {finding.setup.value(name), str(finding.setup.requested.get(name, ""))}
    return value in (found if name != "framework" else found | {each.partition("@")[0] for each in found})
