"""The SQLite index: rows that can be listed without opening a run's file. It holds nothing that is not in the files."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from dataclasses import astuple, fields
from pathlib import Path
from typing import Final

from deepstone.store.rows import EXACT, Filters, Row, asked_for

_VERSION: Final = 2  # raise it whenever Row changes: an index of another version is thrown away
_APPLICATION: Final = 0x44535431
_BUSY_S: Final = 10.0
_COLUMNS: Final = tuple(field.name for field in fields(Row))


class Index:
    """Rows by run. Every method may raise sqlite3.Error; the catalog knows what to do then."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def runs(self) -> frozenset[str]:
        return frozenset(run for (run,) in self._connection.execute("SELECT id FROM runs"))

    def update(self, *, gone: Iterable[str], new: Iterable[Row]) -> None:
        """Forgets and learns in one transaction."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("DELETE FROM runs WHERE id = ?", ((run,) for run in gone))
            marks = ", ".join("?" * len(_COLUMNS))
            self._connection.executemany(f"INSERT OR REPLACE INTO runs VALUES ({marks})", (astuple(row) for row in new))

    def select(self, filters: Filters) -> tuple[Row, ...]:
        given = {name: value for name in EXACT if (value := getattr(filters, name)) is not None}
        where = " AND ".join(_matches(name) for name in given) or "1"
        query = f"SELECT {', '.join(_COLUMNS)} FROM runs WHERE {where} ORDER BY started_at, id"
        found = self._connection.execute(query, tuple(given.values()))
        rows = (Row(**dict(zip(_COLUMNS, values, strict=True))) for values in found)
        return tuple(row for row in rows if asked_for(row, filters))


def _matches(column: str) -> str:
    # A framework in effect is its name and version, and is found by its name too: torch finds torch@2.11.0.
    if column == "framework":
        return "? IN (framework, substr(framework, 1, instr(framework || '@', '@') - 1))"
    return f"{column} = ?"


@contextmanager
def on_disk(path: Path) -> Generator[Index]:
    """The index in its file, made when there is none; sqlite3.DatabaseError when the file is something else."""
    with closing(sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # WAL needs shared memory, which NFS has not
        _prepare(connection)
        yield Index(connection)


@contextmanager
def in_memory(copied_from: Path | None) -> Generator[Index]:
    """An index for one answer, begun from a copy of the file."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        if copied_from:
            source = sqlite3.connect(f"{copied_from.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_S)
            with closing(source):
                source.backup(connection)
        _prepare(connection)
        yield Index(connection)


def _prepare(connection: sqlite3.Connection) -> None:
    """Makes the table in a new file; refuses a file that is not an index of this version."""
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
