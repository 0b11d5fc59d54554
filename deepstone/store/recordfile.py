"""A file of records that anyone may have written: what `export` gives, read and checked one record at a time.

It holds one record (as stored, or bare), a JSON list of them, or one per line (JSONL).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

from deepstone.errors import RefusedInputError
from deepstone.faults import reason
from deepstone.records.identity import canonical_sha256
from deepstone.records.read import parse_json
from deepstone.records.schema import Record
from deepstone.store.files import open_regular
from deepstone.store.findings import is_finding, unwrap_finding
from deepstone.store.runfile import MAX_FILE_BYTES, unwrap

MAX_JSONL_BYTES: Final = 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One record or finding of the file, and its place there, as a message names it."""

    place: str
    record: Record
    is_finding: bool = False

    @property
    def sha256(self) -> str:
        return canonical_sha256(self.record)


def read_records(path: Path) -> list[Record]:
    """All records of the file; RefusedInputError when there is none, or when one is no good."""
    try:
        with opened(path) as file:
            records = [entry.record for entry in entries(path, file) if not entry.is_finding]
    except OSError as error:
        raise RefusedInputError(f"{path}: cannot be read: {reason(error)}") from error
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
            if is_finding(content):
                yield Entry(place=place, record=cast(Record, unwrap_finding(content)), is_finding=True)
            else:
                yield Entry(place=place, record=unwrap(content))
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
    if not isinstance(content, list):
        yield "", content
        return
    for number, item in enumerate(cast(list[object], content), start=1):
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
