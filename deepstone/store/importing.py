"""Taking in runs measured elsewhere: everything is read and checked before anything is written.

A file holds one record (as stored, or bare), a JSON list of them, or one per line (JSONL).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

from deepstone.errors import RefusedInputError, StoreError
from deepstone.faults import reason
from deepstone.records.identity import canonical_sha256
from deepstone.records.read import parse_json
from deepstone.records.schema import Record
from deepstone.store.faults import remedy
from deepstone.store.files import open_regular
from deepstone.store.runfile import MAX_FILE_BYTES, unwrap
from deepstone.store.store import Store

MAX_JSONL_BYTES: Final = 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """How many runs were new, and how many the store had already."""

    added: int
    skipped: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    """One record of the file and its place there, as a message names it."""

    place: str
    record: Record

    @property
    def sha256(self) -> str:
        return canonical_sha256(self.record)


def import_records(store: Store, path: Path) -> Imported:
    """Adds the file's runs under the ids they have; RefusedInputError when one is no good, and then none is added."""
    try:
        with _opened(path) as file:
            checked = _check_all(store, path, file)
            return _write_all(store, path, file, checked)
    except OSError as error:
        raise RefusedInputError(f"{path}: cannot be read: {reason(error)}") from error


def _check_all(store: Store, path: Path, file: BinaryIO) -> dict[str, str]:
    """The SHA-256 of every run in the file by id, once all are known to be good and in conflict with none."""
    checked: dict[str, str] = {}
    for entry in _entries(path, file):
        run, sha256 = entry.record["id"], entry.sha256
        if checked.setdefault(run, sha256) != sha256:
            raise _refused(path, entry.place, f"the file holds another run {run}")
        if _kept(store, entry) not in (None, sha256):
            raise _refused(path, entry.place, _conflict(run))
    if not checked:
        raise _refused(path, "", "holds no records")
    return checked


def _write_all(store: Store, path: Path, file: BinaryIO, checked: dict[str, str]) -> Imported:
    """The second reading: what was checked, and nothing else, is written."""
    added = skipped = 0
    try:
        for entry in _entries(path, file):
            if checked.get(entry.record["id"]) != entry.sha256:
                raise _refused(path, entry.place, "is not what was checked")
            if _insert(store, path, entry, added):
                added += 1
            else:
                skipped += 1
    except RefusedInputError as error:
        raise RefusedInputError(f"{path}: changed during the import; {added} runs were added before") from error
    return Imported(added=added, skipped=skipped)


def _insert(store: Store, path: Path, entry: _Entry, added: int) -> bool:
    try:
        if store.insert(entry.record):
            return True
    except OSError as error:
        raise StoreError(
            f"cannot write to the store {store.root}: {reason(error)}; {added} runs were added: {remedy(error)}, "
            f"then import {path} again"
        ) from error
    if _kept(store, entry) != entry.sha256:
        run = entry.record["id"]
        raise StoreError(f"another process added {run} meanwhile; {added} runs were added: import {path} again")
    return False


def _kept(store: Store, entry: _Entry) -> str | None:
    """The SHA-256 of the record that the store has under this id; StoreError when its file is damaged."""
    run = entry.record["id"]
    return canonical_sha256(store.get(run)) if store.has(run) else None


def _conflict(run: str) -> str:
    return f"the store holds {run} with other content (a redacted copy of a run differs from it)"


def _entries(path: Path, file: BinaryIO) -> Iterator[_Entry]:
    """The file's checked records from its beginning, one in memory at a time where it is JSONL."""
    file.seek(0)
    first = file.readline(MAX_FILE_BYTES + 1)
    file.seek(0)
    contents = _lines(path, file) if _is_jsonl(first) else _document(path, file)
    for place, content in contents:
        try:
            yield _Entry(place=place, record=unwrap(content))
        except RefusedInputError as error:
            raise _refused(path, place, str(error)) from None


def _is_jsonl(first: bytes) -> bool:
    """Whether the first line is an object by itself; if not, the whole file must be one document."""
    try:
        return isinstance(parse_json(first, limit_bytes=MAX_FILE_BYTES), dict)
    except RefusedInputError:
        return False


def _lines(path: Path, file: BinaryIO) -> Iterator[tuple[str, object]]:
    if os.fstat(file.fileno()).st_size > MAX_JSONL_BYTES:
        raise _refused(path, "", f"is larger than {MAX_JSONL_BYTES // 2**30} GiB; import it in parts")
    number = 0
    while line := file.readline(MAX_FILE_BYTES + 1):
        number += 1
        if line.strip():
            yield f"line {number}", _parsed(path, f"line {number}", line)


def _document(path: Path, file: BinaryIO) -> Iterator[tuple[str, object]]:
    content = _parsed(path, "", file.read(MAX_FILE_BYTES + 1))
    if not isinstance(content, list):
        yield "", content
        return
    for number, item in enumerate(cast(list[object], content), start=1):
        yield f"record {number}", item


def _parsed(path: Path, place: str, data: bytes) -> object:
    try:
        return parse_json(data, limit_bytes=MAX_FILE_BYTES)
    except RefusedInputError as error:
        raise _refused(path, place, str(error)) from None


def _opened(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except IsADirectoryError:
        raise _refused(path, "", "is a folder; import a file that `deepstone results export` wrote") from None


def _refused(path: Path, place: str, why: str) -> RefusedInputError:
    where = f"{path}: {place}" if place else str(path)
    return RefusedInputError(f"{where}: {why}; nothing was imported")
