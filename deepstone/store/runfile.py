"""The file of one run: the record and the SHA-256 of its canonical JSON."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, cast

from deepstone.errors import RefusedInputError
from deepstone.records.identity import canonical_json, canonical_sha256
from deepstone.records.read import parse_json
from deepstone.records.schema import MAX_RECORD_BYTES, Record
from deepstone.records.validate import check_record
from deepstone.store.files import open_regular

_KEYS: Final = {"sha256", "record"}
MAX_FILE_BYTES: Final = MAX_RECORD_BYTES + 1024  # a record and what is around it


def encode(record: Record) -> bytes:
    """The content of the file; RefusedInputError when it could not be read back."""
    data = canonical_json(record).encode("ascii")
    if len(data) > MAX_RECORD_BYTES:
        raise RefusedInputError(f"record: is larger than {MAX_RECORD_BYTES // 2**20} MiB")
    return b'{"record":%b,"sha256":"%b"}\n' % (data, hashlib.sha256(data).hexdigest().encode("ascii"))


def read(path: Path, run: str) -> Record:
    """The record in the file of this run; RefusedInputError when the file is damaged, OSError when unreadable."""
    with open_regular(path) as file:
        data = file.read(MAX_FILE_BYTES + 1)
    content = parse_json(data, limit_bytes=MAX_FILE_BYTES)
    if not is_wrapped(content):
        raise RefusedInputError("is not a record with its checksum")
    record = unwrap(content)
    if record["id"] != run:
        raise RefusedInputError(f"holds the run {record['id']}")
    return record


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
