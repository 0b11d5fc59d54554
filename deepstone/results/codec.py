"""Converts untrusted bytes into results, and results into bytes. Errors name the place of the mistake.

bytes ─▶ parse_json ─▶ plain JSON ─▶ msgspec ─▶ checks ─▶ Record, Finding, Chart, …
         size, depth,   no null,     types,     parts agree,
         repeated keys  no NaN       closed lists   no paths
"""

from __future__ import annotations

import hashlib
from typing import Final, TypeVar

import msgspec

from deepstone.errors import RefusedInputError
from deepstone.results import checks
from deepstone.results.chart import Chart
from deepstone.results.claim import JudgedPaper
from deepstone.results.findings import KINDS, PARTS, Finding, FindingHead
from deepstone.results.identity import canonical_json
from deepstone.results.parts import Json, Part, from_builtins
from deepstone.results.plain import check_plain, is_object, shown
from deepstone.results.record import SCHEMA, Record
from deepstone.results.refusal import rewritten
from deepstone.results.scaling import Scaling

S = TypeVar("S", bound=msgspec.Struct)

_RECORDS: Final = msgspec.json.Decoder(Record, dec_hook=from_builtins)


def decode_checked_record(data: bytes) -> Record:
    """Decode a record whose text was checked before."""
    return _RECORDS.decode(data)


def as_record(content: object) -> Record:
    """Raises RefusedInputError for the first mistake."""
    if isinstance(content, Record):
        return content
    check_plain(content)
    schema = content.get("schema", SCHEMA) if is_object(content) else SCHEMA
    if type(schema) is not int or schema != SCHEMA:
        raise RefusedInputError(f"schema: is {shown(schema)}; this version of Deepstone reads schema {SCHEMA}")
    record = convert(content, Record)
    checks.check_record(record)
    return record


def as_finding(content: object) -> Finding:
    """Convert a finding from a store or an export: it has a name and all fields of a finding."""
    if isinstance(content, Finding):
        return content
    finding = as_bare_finding(content)
    checks.check_finding(finding)
    return finding


def as_bare_finding(content: object) -> Finding:
    """Convert a finding as a command prints it: of one framework or batch, or of several."""
    check_plain(content)
    if not is_object(content):
        raise RefusedInputError("is not a finding")
    head = {name: value for name, value in content.items() if name in FindingHead.__struct_fields__}
    rest = {name: value for name, value in content.items() if name not in head}
    found = convert(head, FindingHead)
    if found.kind not in KINDS:
        raise RefusedInputError(f"kind: must be one of {', '.join(KINDS)}, not {shown(found.kind)}")
    fields = {name: getattr(found, name) for name in FindingHead.__struct_fields__}
    for by in PARTS:
        if by in rest:
            parts = _parts(rest.pop(by), by, {"schema": found.schema, "kind": found.kind})
            return Finding(**fields, parts=parts, parts_by=by, shared=msgspec.convert(rest, dict[str, Json]) or None)
    return Finding(**fields, content=convert(rest, KINDS[found.kind]) if rest else None)


def _parts(content: object, by: str, head: dict[str, object]) -> dict[str, Finding]:
    """Convert the parts. A failed part has only its outcome; it has the same kind as the others."""
    if not is_object(content):
        raise RefusedInputError(f"{by}: must be an object, not {shown(content)}")
    return {name: as_bare_finding({**head, **part} if is_object(part) else part) for name, part in content.items()}


def as_chart(content: object) -> Chart:
    check_plain(content)
    return convert(content, Chart)


def as_scaling(content: object) -> Scaling:
    check_plain(content)
    return convert(content, Scaling)


def as_paper(content: object) -> JudgedPaper:
    check_plain(content)
    return convert(content, JudgedPaper)


def convert(content: object, kind: type[S]) -> S:
    """Convert our own JSON, or JSON that was checked to be plain, to this type."""
    try:
        return msgspec.convert(content, kind, dec_hook=from_builtins)
    except msgspec.ValidationError as error:
        raise RefusedInputError(rewritten(error, content, kind, whole="record")) from None


def encode(result: Part) -> bytes:
    """Return the canonical text of a result, which is hashed and stored."""
    return canonical_json(result.to_json()).encode("ascii")


def sha256(result: Part) -> str:
    """Return the hash of its text."""
    return hashlib.sha256(encode(result)).hexdigest()
