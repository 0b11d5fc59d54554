"""The file of one run or finding: its JSON and its SHA-256. It is written once; reading verifies the checksum."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, Literal, TypeAlias, TypeGuard, TypeVar

from msgspec import Struct

from deepstone.errors import RefusedInputError
from deepstone.results import codec
from deepstone.results.findings import Finding
from deepstone.results.identity import canonical_sha256
from deepstone.results.parts import Part
from deepstone.results.plain import MAX_BYTES, is_object, parse_json
from deepstone.results.record import Record
from deepstone.store.files import open_regular

MAX_FILE_BYTES: Final = MAX_BYTES + 1024  # a result and its wrapper

What: TypeAlias = Literal["record", "finding"]
R = TypeVar("R", bound=Part)


class Checked(Struct, Generic[R], frozen=True, kw_only=True):
    """A result that passed all checks, and its SHA-256."""

    result: R
    sha256: str


def seal(result: Record | Finding) -> bytes:
    """Return the content of the file. Raises RefusedInputError if it could not be read back."""
    what: What = "record" if isinstance(result, Record) else "finding"
    data = codec.encode(result)
    if len(data) > MAX_BYTES:
        raise RefusedInputError(f"{what}: is larger than {MAX_BYTES // 2**20} MiB")
    return _wrapped(what, data, _checksum(data))


def read_record(path: Path, run: str) -> Checked[Record]:
    """Return the record of this run. Raises RefusedInputError if the file is damaged, OSError if it is unreadable."""
    checked = _read(path, "record", codec.as_record)
    if checked.result.id != run:
        raise RefusedInputError(f"holds the run {checked.result.id}")
    return checked


def read_finding(path: Path, id: str) -> Finding:
    finding = _read(path, "finding", codec.as_finding).result
    if finding.id != id:
        raise RefusedInputError(f"holds the finding {finding.id}")
    return finding


def read_unchanged(path: Path, sha256: str) -> Record | None:
    """Return the record of a file that was checked before and has not changed; None if it changed or is unreadable.

    This skips the checks, which take most of the time: the checksum shows that these bytes passed them.
    """
    try:
        body = _content(path)[_body("record")]
    except OSError:
        return None
    return codec.decode_checked_record(body) if _checksum(body) == sha256 else None


def _read(path: Path, what: What, decode: Callable[[object], R]) -> Checked[R]:
    data = _content(path)
    body = data[_body(what)]
    sha256 = _checksum(body)
    if data == _wrapped(what, body, sha256):  # otherwise the file was rewritten or damaged
        return Checked(result=decode(parse_json(body)), sha256=sha256)
    content = parse_json(data, limit_bytes=MAX_FILE_BYTES)
    if not _is_wrapped(content, what):
        raise RefusedInputError(f"is not a {what} with its checksum")
    result = _unwrapped(content, what, decode)
    return Checked(result=result, sha256=codec.sha256(result))


def unsealed(content: object) -> Record | Finding:
    """Return the checked result from parsed JSON, as stored or bare; verify its checksum if it has one."""
    if _is_wrapped(content, "finding") or (is_object(content) and "task" in content and "job" not in content):
        return _unwrapped(content, "finding", codec.as_finding)
    return _unwrapped(content, "record", codec.as_record)


def _unwrapped(content: object, what: What, decode: Callable[[object], R]) -> R:
    if not _is_wrapped(content, what):
        return decode(content)
    result = decode(content[what])
    if content["sha256"] != canonical_sha256(content[what]):
        raise RefusedInputError("does not match its checksum")
    return result


def _is_wrapped(content: object, what: What) -> TypeGuard[dict[str, object]]:
    return is_object(content) and content.keys() == {"sha256", what}


def _content(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read(MAX_FILE_BYTES + 1)


def _body(what: What) -> slice:
    """Return the position of the result in a file that we wrote."""
    return slice(len(f'{{"{what}":'), -len(',"sha256":""}\n') - 64)


def _wrapped(what: What, body: bytes, sha256: str) -> bytes:
    return b'{"%b":%b,"sha256":"%b"}\n' % (what.encode("ascii"), body, sha256.encode("ascii"))


def _checksum(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
