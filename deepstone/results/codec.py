"""From bytes that anyone may have written to results, and back. Whatever is wrong is said with its place.

bytes ─▶ parse_json ─▶ plain JSON ─▶ msgspec ─▶ checks ─▶ Record, Finding, Chart, …
         size, depth,   no null,     types,     parts agree,
         repeated keys  no NaN       closed lists   no paths
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final, TypeVar, cast, get_args

import msgspec

from deepstone.errors import RefusedInputError
from deepstone.results import checks
from deepstone.results.chart import Chart, ChartForm, ChartScale
from deepstone.results.claim import JudgedPaper, VerdictWord
from deepstone.results.findings import KINDS, PARTS, Content, Finding, FindingHead
from deepstone.results.identity import canonical_json
from deepstone.results.plain import Place, check_plain, parse_json, shown, spelled
from deepstone.results.parts import AT, Json, Part, from_builtins
from deepstone.results.record import OUTCOMES, SCHEMA, WORKLOAD_PHASES, Record

P = TypeVar("P", bound=Part)

_RECORDS: Final = msgspec.json.Decoder(Record, dec_hook=from_builtins)
_STEP: Final = re.compile(r"\[(\d+)\]|\.([^.\[]+)")
_EXPECTED: Final = re.compile(r"Expected `([^`]*)`(.*?)(?:, got `[^`]*`)?$")
_WORDS: Final = {
    "int": "a whole number",
    "float": "a finite number",
    "int | float": "a finite number",
    "str": "text",
    "bool": "true or false",
    "object": "an object",
    "int | float | object": "a finite number or an object",
    "array": "a list",
    "int | str": "text or a whole number",
    "bool | int | float | str": "text, a number, true or false",
}
_PATTERNS: Final = {
    "[0-9a-f]{64}\\\\Z": "64 hexadecimal digits",
    "[0-9a-f]{64})?": "64 hexadecimal digits, or empty",
    "[0-9a-f]{20}": "20 hexadecimal digits, a dash and the attempt",
    "T[0-9]{2}": checks.TIME_IN_WORDS,
    "SIG": "a signal's name like SIGSEGV",
}
_CLOSED: Final = {
    "outcome": OUTCOMES,
    "phase": WORKLOAD_PHASES,
    "source": ("observed", "set"),
    "interval": ("within process", "across launches"),
    "kind": tuple(KINDS),
    "form": get_args(ChartForm),
    "scale": get_args(ChartScale),
    "verdict": get_args(VerdictWord),
}


def decode_record(data: bytes) -> Record:
    return as_record(parse_json(data))


def decode_known_record(data: bytes) -> Record:
    """A record whose text was checked before."""
    return _RECORDS.decode(data)


def as_record(content: object) -> Record:
    """RefusedInputError tells the first thing that is wrong."""
    if isinstance(content, Record):
        return content
    check_plain(content)
    schema = cast(dict[str, object], content).get("schema", SCHEMA) if isinstance(content, dict) else SCHEMA
    if type(schema) is not int or schema != SCHEMA:
        raise RefusedInputError(f"schema: is {shown(schema)}; this version of Deepstone reads schema {SCHEMA}")
    record = convert(cast(object, content), Record)
    checks.check_record(record)
    return record


def as_finding(content: object) -> Finding:
    """A finding from a store or an export: it has a name, and all that a finding has at any rate."""
    if isinstance(content, Finding):
        return content
    finding = as_bare_finding(content)
    checks.check_finding(finding)
    return finding


def as_bare_finding(content: object) -> Finding:
    """A finding as a command prints it: of one framework or batch, or of several together."""
    check_plain(content)
    if not isinstance(content, dict):
        raise RefusedInputError("is not a finding")
    items = cast(dict[str, Json], content)
    head = {name: value for name, value in items.items() if name in FindingHead.__struct_fields__}
    rest = {name: value for name, value in items.items() if name not in head}
    found = convert(head, FindingHead)
    if found.kind not in KINDS:
        raise RefusedInputError(f"kind: must be one of {', '.join(KINDS)}, not {shown(found.kind)}")
    fields = {name: getattr(found, name) for name in FindingHead.__struct_fields__}
    for by in PARTS:
        if by in rest:
            parts = _parts(rest.pop(by), by, {"schema": found.schema, "kind": found.kind})
            return Finding(**fields, parts=parts, parts_by=by, shared=rest or None)
    return Finding(**fields, content=cast(Content, convert(rest, KINDS[found.kind])) if rest else None)


def _parts(content: object, by: str, head: dict[str, Json]) -> dict[str, Finding]:
    """A part that failed tells no more than its outcome; it is of the same kind as the others."""
    if not isinstance(content, dict):
        raise RefusedInputError(f"{by}: must be an object, not {shown(content)}")
    items = cast(dict[str, object], content)
    return {
        name: as_bare_finding({**head, **cast(dict[str, Json], part)} if isinstance(part, dict) else part)
        for name, part in items.items()
    }


def as_chart(content: object) -> Chart:
    check_plain(content)
    return convert(content, Chart)


def as_paper(content: object) -> JudgedPaper:
    check_plain(content)
    return convert(content, JudgedPaper)


def convert(content: object, kind: type[P]) -> P:
    """JSON of our own making, or checked to be plain, as an object of this type."""
    try:
        return msgspec.convert(content, kind, dec_hook=from_builtins)
    except msgspec.ValidationError as error:
        raise RefusedInputError(_in_our_words(str(error), content)) from None


def to_json(result: Part) -> dict[str, Json]:
    return result.to_json()


def encode(result: Part) -> bytes:
    """The one text of a result: what is hashed, and what is stored."""
    return canonical_json(result.to_json()).encode("ascii")


def sha256(result: Part) -> str:
    """The name of its text."""
    return hashlib.sha256(encode(result)).hexdigest()


def _in_our_words(message: str, content: object) -> str:
    """msgspec's message ends with its place, once for each of our own types on the way to it, the innermost first."""
    what, *places = message.split(AT)
    steps = [
        int(index) if index else key for place in reversed(places) for index, key in _STEP.findall(place.rstrip("`"))
    ]
    name = re.search(r"field `(.*)`", what)
    if name:
        where = spelled(_place([*steps, name[1]]))
        return f"{where}: is missing" if "missing" in what else f"{where}: is not a key of a result"
    value = _at(content, steps)
    where = spelled(_place(steps)) or "record"
    if what.startswith("Invalid enum value"):
        return f"{where}: must be one of {', '.join(_CLOSED.get(str(steps[-1]), ()))}, not {shown(value)}"
    expected = _EXPECTED.match(what)
    return f"{where}: must be {_expected(expected)}, not {shown(value)}" if expected else f"{where}: {what}"


def _expected(match: re.Match[str]) -> str:
    kind, more = match[1].removesuffix(" | null"), match[2]
    words = _WORDS.get(kind, kind)
    if "regex" in more:
        return next((told for pattern, told in _PATTERNS.items() if pattern in more), words)
    if kind == "str" and "length" in more:
        return "text that is not empty"
    least = re.search(r">= (\d+)", more)
    return f"{words} of at least {least[1]}" if least else words


def _place(steps: list[str | int]) -> Place:
    where: Place = None
    for step in steps:
        where = (where, step)
    return where


def _at(content: object, steps: list[str | int]) -> object:
    for step in steps:
        try:
            content = cast(Any, content)[step]
        except (KeyError, IndexError, TypeError):
            return content
    return content
