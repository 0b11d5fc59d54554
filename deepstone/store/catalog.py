"""The list of runs: a SQLite index that follows the folder. The index holds nothing that is not in the files, so a
damaged or missing index never changes a result."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec.structs import astuple

from deepstone.errors import RefusedInputError, reason
from deepstone.results.record import Record
from deepstone.store.files import locked
from deepstone.store.layout import Damage, Layout, scan
from deepstone.store.rows import EXACT, Filters, Listing, Row, matches_axes, row_of
from deepstone.store.sealed import Checked, read_record, read_unchanged

_LOCK_WAIT_S: Final = 10.0
_VERSION: Final = 4  # increase it whenever Row changes: an index of another version is discarded
_APPLICATION: Final = 0x44535431
_BUSY_S: Final = 10.0
_COLUMNS: Final = Row.__struct_fields__


def listing(layout: Layout, filters: Filters) -> Listing:
    """Return the rows that match. Raises OSError only if the folder of runs itself cannot be listed."""
    with locked(layout.index_lock, wait_s=_LOCK_WAIT_S) as acquired:
        answer = _from_disk(layout, filters) if acquired else None
    return answer or _from_memory(layout, filters)


def rebuild(layout: Layout) -> Listing:
    """Read and verify every file, and rebuild the index."""
    with locked(layout.index_lock, wait_s=_LOCK_WAIT_S) as acquired:
        answer = None
        if acquired:
            _discard(layout.index)
            answer = _from_disk(layout, Filters())
    return answer or _verify(layout)


def _from_disk(layout: Layout, filters: Filters) -> Listing | None:
    """List from the index file; rebuild it if it is damaged or of another version. Return None if it is not
    writable."""
    try:
        return _query_disk(layout, filters)
    except sqlite3.OperationalError:  # read-only, full or locked: the file may be good, but we cannot write it
        return None
    except sqlite3.DatabaseError:
        _discard(layout.index)
    try:
        return _query_disk(layout, filters)
    except sqlite3.Error:
        return None


def _query_disk(layout: Layout, filters: Filters) -> Listing:
    with on_disk(layout.index) as index:
        return _answer(index, layout, filters)


def _from_memory(layout: Layout, filters: Filters) -> Listing:
    try:
        with in_memory(copied_from=layout.index) as index:
            return _answer(index, layout, filters)
    except sqlite3.Error:  # there is no usable file to copy
        return _verify(layout, filters)


def _verify(layout: Layout, filters: Filters | None = None) -> Listing:
    with in_memory(copied_from=None) as index:
        return _answer(index, layout, filters or Filters())


def _discard(index: Path) -> None:
    # Remove the journal first: SQLite would apply it to the new index.
    with suppress(OSError):
        index.with_name(f"{index.name}-journal").unlink(missing_ok=True)
        index.unlink(missing_ok=True)


def _answer(index: Index, layout: Layout, filters: Filters) -> Listing:
    damaged = _reconcile(index, layout)
    return Listing(rows=index.select(filters), damaged=damaged)


def _reconcile(index: Index, layout: Layout) -> tuple[Damage, ...]:
    """Update the index to match the folder, by names. Return the files that could not be read."""
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
        checked = _read_or_report(layout, run, damaged)
        if checked is not None:
            rows.append(row_of(checked.result, checked.sha256))
    return rows, damaged


def records(layout: Layout, rows: Iterable[Row], damaged: list[Damage]) -> Iterator[Record]:
    """Yield the records of these rows. Files that cannot be read go to `damaged`; deleted ones are left out."""
    for row in rows:
        known = read_unchanged(layout.run_file(row.id), row.sha256)
        if known is not None:
            yield known
            continue
        checked = _read_or_report(layout, row.id, damaged)
        if checked is not None:
            yield checked.result


def _read_or_report(layout: Layout, run: str, damaged: list[Damage]) -> Checked[Record] | None:
    path = layout.run_file(run)
    try:
        return read_record(path, run)
    except FileNotFoundError:  # deleted since the folder was listed
        return None
    except RefusedInputError as error:
        damaged.append(Damage(path=path, reason=str(error)))
    except OSError as error:
        damaged.append(Damage(path=path, reason=f"cannot be read: {reason(error)}"))
    return None


class Index:
    """Rows by run. Every method may raise sqlite3.Error, which the catalog handles."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def runs(self) -> frozenset[str]:
        return frozenset(run for (run,) in self._connection.execute("SELECT id FROM runs"))

    def update(self, *, gone: Iterable[str], new: Iterable[Row]) -> None:
        """Remove and add rows in one transaction."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("DELETE FROM runs WHERE id = ?", ((run,) for run in gone))
            placeholders = ", ".join("?" * len(_COLUMNS))
            self._connection.executemany(
                f"INSERT OR REPLACE INTO runs VALUES ({placeholders})", (astuple(row) for row in new)
            )

    def select(self, filters: Filters) -> tuple[Row, ...]:
        given = {name: value for name in EXACT if (value := getattr(filters, name)) is not None}
        where = " AND ".join(_matches(name) for name in given) or "1"
        query = f"SELECT {', '.join(_COLUMNS)} FROM runs WHERE {where} ORDER BY started_at, id"
        found = self._connection.execute(query, tuple(given.values()))
        rows = (Row(**dict(zip(_COLUMNS, values, strict=True))) for values in found)
        return tuple(row for row in rows if matches_axes(row, filters))


def _matches(column: str) -> str:
    # The name alone finds an effective framework with its version: torch finds torch@2.11.0.
    if column == "framework":
        return "? IN (framework, substr(framework, 1, instr(framework || '@', '@') - 1))"
    # A job has the name in its record and a canonical name; either finds the runs of both.
    if column == "job":
        return "canonical_job IN (SELECT canonical_job FROM runs WHERE ? IN (job, canonical_job))"
    return f"{column} = ?"


@contextmanager
def on_disk(path: Path) -> Generator[Index]:
    """Open the index file, or create it. Raises sqlite3.DatabaseError if the file is something else."""
    with closing(sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # WAL needs shared memory, which NFS lacks
        _prepare(connection)
        yield Index(connection)


@contextmanager
def in_memory(copied_from: Path | None) -> Generator[Index]:
    """Open an index in memory for one query, as a copy of the file."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        if copied_from:
            source = sqlite3.connect(f"{copied_from.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_S)
            with closing(source):
                source.backup(connection)
        _prepare(connection)
        yield Index(connection)


def _prepare(connection: sqlite3.Connection) -> None:
    """Create the table in a new file; refuse a file that is not an index of this version."""
    found = (_pragma(connection, "application_id"), _pragma(connection, "user_version"))
    if found == (_APPLICATION, _VERSION):
        return
    if found != (0, 0) or connection.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
        raise sqlite3.DatabaseError("not an index of this version")
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"CREATE TABLE runs (id PRIMARY KEY, {', '.join(_COLUMNS[1:])})")
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {_VERSION}")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]
