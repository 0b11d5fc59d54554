"""JSONL: whole records, which can be imported again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from deepstone.records.identity import canonical_json
from deepstone.records.schema import Record
from deepstone.store.export.prepared import prepared


def export_jsonl(records: Iterable[Record], *, redact: bool = True) -> Iterator[str]:
    """One line per run, each a whole record."""
    for record in prepared(records, redact=redact):
        yield canonical_json(record) + "\n"
