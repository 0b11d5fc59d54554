"""Findings as lines of JSON, beside the records of runs: they are given away and imported together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from deepstone.records import redact as redaction
from deepstone.records.identity import canonical_json
from deepstone.store.findings import Finding
from deepstone.store.rows import Filters

_COLUMNS: Final = ("model", "framework", "device", "batch", "phase", "outcome")


def export_findings(findings: Iterable[Finding], *, redact: bool = True) -> Iterator[str]:
    """One line per finding, each whole."""
    names = redaction.PrivateNames.of_this_machine() if redact else None
    for finding in findings:
        shown = finding if names is None else redaction.redact_finding(finding, names)
        yield canonical_json(shown) + "\n"


def matching(findings: Iterable[Finding], filters: Filters) -> Iterator[Finding]:
    """Those that have every value asked for."""
    asked = {name: str(value) for name in _COLUMNS if (value := getattr(filters, name)) is not None}
    asked |= filters.axes
    for finding in findings:
        values = _values(finding)
        if filters.job is None and all(str(values.get(name, "")) == value for name, value in asked.items()):
            yield finding


def _values(finding: Finding) -> dict[str, Any]:
    setup = cast(Mapping[str, Mapping[str, Any]], finding.get("setup", {}))
    effective = {axis: effect["value"] for axis, effect in setup.get("effective", {}).items() if "value" in effect}
    return {**setup.get("requested", {}), **effective, "model": finding["model"], "outcome": finding["outcome"]}
