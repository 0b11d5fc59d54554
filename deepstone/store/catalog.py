"""Keeps the index in step with the folder, and answers from it; whatever befalls the index, the answer is right."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from deepstone.errors import RefusedInputError
from deepstone.faults import reason
from deepstone.records.schema import Record
from deepstone.store.files import locked
from deepstone.store.index import Index, in_memory, on_disk
from deepstone.store.layout import Damage, Layout, scan
from deepstone.store.rows import Filters, Listing, Row, row_of
from deepstone.store.runfile import Checked, read, read_known

_LOCK_WAIT_S: Final = 10.0


def listing(layout: Layout, filters: Filters) -> Listing:
    """The rows that match. OSError only when the folder of runs itself cannot be listed."""
    with locked(layout.index_lock, wait_s=_LOCK_WAIT_S) as held:
        answer = _from_disk(layout, filters) if held else None
    return answer or _from_memory(layout, filters)


def rebuild(layout: Layout) -> Listing:
    """Reads and verifies every file, and makes the index anew."""
    with locked(layout.index_lock, wait_s=_LOCK_WAIT_S) as held:
        answer = None
        if held:
            _discard(layout.index)
            answer = _from_disk(layout, Filters())
    return answer or _verify(layout)


def _from_disk(layout: Layout, filters: Filters) -> Listing | None:
    """From the index file, made anew if it is damaged or of another version; None when it cannot be written."""
    try:
        return _ask_disk(layout, filters)
    except sqlite3.OperationalError:  # read-only, full, locked: the file may be good, and we cannot write it
        return None
    except sqlite3.DatabaseError:
        _discard(layout.index)
    try:
        return _ask_disk(layout, filters)
    except sqlite3.Error:
        return None


def _ask_disk(layout: Layout, filters: Filters) -> Listing:
    with on_disk(layout.index) as index:
        return _answer(index, layout, filters)


def _from_memory(layout: Layout, filters: Filters) -> Listing:
    try:
        with in_memory(copied_from=layout.index) as index:
            return _answer(index, layout, filters)
    except sqlite3.Error:  # nothing there to copy, or nothing good
        return _verify(layout, filters)


def _verify(layout: Layout, filters: Filters | None = None) -> Listing:
    with in_memory(copied_from=None) as index:
        return _answer(index, layout, filters or Filters())


def _discard(index: Path) -> None:
    # The journal goes first: left beside a new index, it would be played back into it.
    with suppress(OSError):
        index.with_name(f"{index.name}-journal").unlink(missing_ok=True)
        index.unlink(missing_ok=True)


def _answer(index: Index, layout: Layout, filters: Filters) -> Listing:
    damaged = _reconcile(index, layout)
    return Listing(rows=index.select(filters), damaged=damaged)


def _reconcile(index: Index, layout: Layout) -> tuple[Damage, ...]:
    """Brings the index in step with the folder by names; what could not be read, this time as every time."""
    found = scan(layout)
    known = index.runs()
    rows, damaged = _read_all(layout, sorted(found.runs - known))
    gone = known - found.runs
    if rows or gone:
        index.update(gone=gone, new=rows)
    return (*found.damaged, *damaged)


def _read_all(layout: Layout, runs: Iterable[str]) -> tuple[list[Row], list[Damage]]:
    rows: list[Row] = []
    damaged: list[Damage] = []
    for run in runs:
        checked = _read_or_tell(layout, run, damaged)
        if checked is not None:
            rows.append(row_of(checked.record, checked.sha256))
    return rows, damaged


def records(layout: Layout, rows: Iterable[Row], damaged: list[Damage]) -> Iterator[Record]:
    """The records of these rows; what cannot be read goes to `damaged`. One deleted since then is left out."""
    for row in rows:
        known = read_known(layout.run_file(row.id), row.sha256)
        if known is not None:
            yield known
            continue
        checked = _read_or_tell(layout, row.id, damaged)
        if checked is not None:
            yield checked.record


def _read_or_tell(layout: Layout, run: str, damaged: list[Damage]) -> Checked | None:
    path = layout.run_file(run)
    try:
        return read(path, run)
    except FileNotFoundError:  # deleted since the folder was listed
        return None
    except RefusedInputError as error:
        damaged.append(Damage(path=path, reason=str(error)))
    except OSError as error:
        damaged.append(Damage(path=path, reason=f"cannot be read: {reason(error)}"))
    return None
