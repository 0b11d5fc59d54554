"""Imports results from a file that `export` wrote. The file is untrusted.

The file has one record or finding (as stored, or bare), a JSON list of them, or one per line (JSONL). Everything is
read and checked before anything is written.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from deepstone.errors import RefusedInputError, StoreError, reason
from deepstone.results import codec
from deepstone.results.findings import Finding
from deepstone.results.plain import is_list, parse_json
from deepstone.results.record import Record
from deepstone.store.files import open_regular
from deepstone.store.layout import remedy
from deepstone.store.sealed import MAX_FILE_BYTES, unsealed
from deepstone.store.store import Store

MAX_JSONL_BYTES: Final = 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """How many runs were new, and how many the store already had."""

    added: int
    skipped: int


def import_records(store: Store, path: Path) -> Imported:
    """Add the file's runs under their ids. Raises RefusedInputError if one is invalid; then none is added."""
    try:
        with _before_anything():
            file = opened(path)
        with file:
            with _before_anything():
                checked = _check_all(store, path, file)
            return _write_all(store, path, file, checked)
    except OSError as error:
        raise RefusedInputError(f"{path}: cannot be read: {reason(error)}") from error


@contextmanager
def _before_anything() -> Generator[None]:
    try:
        yield
    except RefusedInputError as error:
        raise RefusedInputError(f"{error}; nothing was imported") from None


def _check_all(store: Store, path: Path, file: BinaryIO) -> dict[str, str]:
    """Check that all runs in the file are valid and conflict with none in the store. Return their SHA-256 by id."""
    checked: dict[str, str] = {}
    for entry in entries(path, file):
        run, sha256 = entry.id, entry.sha256
        if checked.setdefault(run, sha256) != sha256:
            raise refused(path, entry.place, f"the file holds another run {run}")
        if _stored_sha256(store, entry) not in (None, sha256):
            raise refused(path, entry.place, _conflict(run))
        _check_numbers(path, entry)
    if not checked:
        raise refused(path, "", "holds no records")
    return checked


def _check_numbers(path: Path, entry: Entry) -> None:
    if isinstance(entry.result, Finding):
        return
    from deepstone.store.contradictions import check_consistent  # it imports NumPy, which an invalid file does not need

    try:
        check_consistent(entry.result)
    except RefusedInputError as error:
        raise refused(path, entry.place, str(error)) from None


def _write_all(store: Store, path: Path, file: BinaryIO, checked: dict[str, str]) -> Imported:
    """Read the file a second time and write exactly what was checked."""
    added = skipped = 0
    try:
        for entry in entries(path, file):
            if checked.get(entry.id) != entry.sha256:
                raise refused(path, entry.place, "is not what was checked")
            if _insert(store, path, entry, added):
                added += 1
            else:
                skipped += 1
    except RefusedInputError as error:
        raise RefusedInputError(f"{path}: changed during the import; {added} runs were added before") from error
    return Imported(added=added, skipped=skipped)


def _insert(store: Store, path: Path, entry: Entry, added: int) -> bool:
    try:
        result = entry.result
        if store.findings.insert(result) if isinstance(result, Finding) else store.insert(result):
            return True
    except OSError as error:
        raise StoreError(
            f"cannot write to the store {store.root}: {reason(error)}; {added} runs were added: {remedy(error)}, "
            f"then import {path} again"
        ) from error
    if _stored_sha256(store, entry) != entry.sha256:
        raise StoreError(f"another process added {entry.id} meanwhile; {added} runs were added: import {path} again")
    return False


def _stored_sha256(store: Store, entry: Entry) -> str | None:
    """Return the SHA-256 of the stored record with this id. Raises StoreError if its file is damaged."""
    if isinstance(entry.result, Finding):
        stored = store.findings.get(entry.id) if store.findings.has(entry.id) else None
    else:
        stored = store.get(entry.id) if store.has(entry.id) else None
    return None if stored is None else codec.sha256(stored)


def _conflict(run: str) -> str:
    return f"the store holds {run} with other content (a redacted copy of a run differs from it)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One record or finding of the file, and its place there for messages."""

    place: str
    result: Record | Finding

    @property
    def id(self) -> str:
        assert self.result.id is not None, "it is checked to have one"
        return self.result.id

    @property
    def sha256(self) -> str:
        return codec.sha256(self.result)


def read_records(path: Path) -> list[Record]:
    """Return all records of the file. Raises RefusedInputError if there is none, or if one is invalid."""
    try:
        with opened(path) as file:
            results = [entry.result for entry in entries(path, file)]
    except OSError as error:
        raise RefusedInputError(f"{path}: cannot be read: {reason(error)}") from error
    records = [result for result in results if isinstance(result, Record)]
    if not records:
        raise refused(path, "", "holds no records")
    return records


def entries(path: Path, file: BinaryIO) -> Iterator[Entry]:
    """Yield the file's checked records; from JSONL, one in memory at a time."""
    file.seek(0)
    first = file.readline(MAX_FILE_BYTES + 1)
    file.seek(0)
    contents = _lines(path, file) if _is_jsonl(first) else _document(path, file)
    for place, content in contents:
        try:
            yield Entry(place=place, result=unsealed(content))
        except RefusedInputError as error:
            raise refused(path, place, str(error)) from None


def _is_jsonl(first: bytes) -> bool:
    """Whether the first line is a complete object; if not, the whole file must be one document."""
    try:
        return isinstance(parse_json(first, limit_bytes=MAX_FILE_BYTES), dict)
    except RefusedInputError:
        return False


def _lines(path: Path, file: BinaryIO) -> Iterator[tuple[str, object]]:
    if os.fstat(file.fileno()).st_size > MAX_JSONL_BYTES:
        raise refused(path, "", f"is larger than {MAX_JSONL_BYTES // 2**30} GiB; import it in parts")
    number = 0
    while line := file.readline(MAX_FILE_BYTES + 1):
        number += 1
        if line.strip():
            yield f"line {number}", _parsed(path, f"line {number}", line)


def _document(path: Path, file: BinaryIO) -> Iterator[tuple[str, object]]:
    content = _parsed(path, "", file.read(MAX_FILE_BYTES + 1))
    if not is_list(content):
        yield "", content
        return
    for number, item in enumerate(content, start=1):
        yield f"record {number}", item


def _parsed(path: Path, place: str, data: bytes) -> object:
    try:
        return parse_json(data, limit_bytes=MAX_FILE_BYTES)
    except RefusedInputError as error:
        raise refused(path, place, str(error)) from None


def opened(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except IsADirectoryError:
        raise refused(path, "", "is a folder, not a file that `deepstone results export` wrote") from None


def refused(path: Path, place: str, why: str) -> RefusedInputError:
    where = f"{path}: {place}" if place else str(path)
    return RefusedInputError(f"{where}: {why}")
