"""The file of one run: the record and the SHA-256 of its canonical JSON."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from deepstone.errors import RefusedInputError
from deepstone.records.identity import canonical_json, canonical_sha256
from deepstone.records.read import parse_json, parse_record
from deepstone.records.schema import MAX_RECORD_BYTES, Record
from deepstone.records.validate import check_record
from deepstone.store.files import open_regular

_KEYS: Final = {"sha256", "record"}
_BODY: Final = slice(len('{"record":'), -len(',"sha256":""}\n') - 64)  # where the record stands in a file that we wrote
MAX_FILE_BYTES: Final = MAX_RECORD_BYTES + 1024  # a record and what is around it


def encode(record: Record) -> bytes:
    """The content of the file; RefusedInputError when it could not be read back."""
    data = canonical_json(record).encode("ascii")
    if len(data) > MAX_RECORD_BYTES:
        raise RefusedInputError(f"record: is larger than {MAX_RECORD_BYTES // 2**20} MiB")
    return _wrapped(data, _checksum(data))


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """A record that passed all checks, and the SHA-256 by which it is known again."""

    record: Record
    sha256: str


def read(path: Path, run: str) -> Checked:
    """The record in the file of this run; RefusedInputError when the file is damaged, OSError when unreadable."""
    data = _content(path)
    body = data[_BODY]
    sha256 = _checksum(body)
    if data == _wrapped(body, sha256):  # else something wrote it anew, or damaged it
        checked = Checked(record=parse_record(body), sha256=sha256)
    else:
        record = _unwrapped(data)
        checked = Checked(record=record, sha256=canonical_sha256(record))
    if checked.record["id"] != run:
        raise RefusedInputError(f"holds the run {checked.record['id']}")
    return checked


def read_known(path: Path, sha256: str) -> Record | None:
    """The record in a file that holds exactly what was checked before; None when it does not, or cannot be read.

    Most of the time that reading takes goes into checks, and the checksum says that they were made on these bytes.
    """
    try:
        body = _content(path)[_BODY]
    except OSError:
        return None
    return cast(Record, json.loads(body)) if _checksum(body) == sha256 else None


def _content(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read(MAX_FILE_BYTES + 1)


def _unwrapped(data: bytes) -> Record:
    content = parse_json(data, limit_bytes=MAX_FILE_BYTES)
    if not is_wrapped(content):
        raise RefusedInputError("is not a record with its checksum")
    return unwrap(content)


def _wrapped(body: bytes, sha256: str) -> bytes:
    return b'{"record":%b,"sha256":"%b"}\n' % (body, sha256.encode("ascii"))


def _checksum(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def is_wrapped(content: object) -> bool:
    return isinstance(content, dict) and set(cast(dict[str, object], content)) == _KEYS


def unwrap(content: object) -> Record:
    """The checked record, with its checksum verified where it has one."""
    if not is_wrapped(content):
        return check_record(content)
    wrapped = cast(dict[str, object], content)
    record = check_record(wrapped["record"])
    if wrapped["sha256"] != canonical_sha256(record):
        raise RefusedInputError("does not match its checksum")
    return record
