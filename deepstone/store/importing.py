"""Taking in results measured elsewhere, from a file that anyone may have written: what `export` gives.

It holds one record or finding (as stored, or bare), a JSON list of them, or one per line (JSONL). Everything is read
and checked before anything is written.
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
    """How many runs were new, and how many the store had already."""

    added: int
    skipped: int


def import_records(store: Store, path: Path) -> Imported:
    """Adds the file's runs under the ids they have; RefusedInputError when one is no good, and then none is added."""
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
    """The SHA-256 of every run in the file by id, once all are known to be good and in conflict with none."""
    checked: dict[str, str] = {}
    for entry in entries(path, file):
        run, sha256 = entry.id, entry.sha256
        if checked.setdefault(run, sha256) != sha256:
            raise refused(path, entry.place, f"the file holds another run {run}")
        if _kept(store, entry) not in (None, sha256):
            raise refused(path, entry.place, _conflict(run))
        _check_numbers(path, entry)
    if not checked:
        raise refused(path, "", "holds no records")
    return checked


def _check_numbers(path: Path, entry: Entry) -> None:
    if isinstance(entry.result, Finding):
        return
    from deepstone.store.contradictions import check_consistent  # NumPy, which a wrong file need not wait for

    try:
        check_consistent(entry.result)
    except RefusedInputError as error:
        raise refused(path, entry.place, str(error)) from None


def _write_all(store: Store, path: Path, file: BinaryIO, checked: dict[str, str]) -> Imported:
    """The second reading: what was checked, and nothing else, is written."""
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
    if _kept(store, entry) != entry.sha256:
        raise StoreError(f"another process added {entry.id} meanwhile; {added} runs were added: import {path} again")
    return False


def _kept(store: Store, entry: Entry) -> str | None:
    """The SHA-256 of the record that the store has under this id; StoreError when its file is damaged."""
    if isinstance(entry.result, Finding):
        kept = store.findings.get(entry.id) if store.findings.has(entry.id) else None
    else:
        kept = store.get(entry.id) if store.has(entry.id) else None
    return None if kept is None else codec.sha256(kept)


def _conflict(run: str) -> str:
    return f"the store holds {run} with other content (a redacted copy of a run differs from it)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One record or finding of the file, and its place there, as a message names it."""

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
    """All records of the file; RefusedInputError when there is none, or when one is no good."""
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
    """The file's checked records from its beginning, one in memory at a time where it is JSONL."""
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
    """Whether the first line is an object by itself; if not, the whole file must be one document."""
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
