"""Records as they may leave the house: without the names of host, user and paths, unless told otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from deepstone.records import redact as redaction
from deepstone.records.schema import Record


def prepared(records: Iterable[Record], *, redact: bool) -> Iterator[Record]:
    if not redact:
        yield from records
        return
    names = redaction.PrivateNames.of_this_machine()
    for record in records:
        yield redaction.redact(record, names)
