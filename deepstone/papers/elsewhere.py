"""Records and findings measured elsewhere, from files that may hold anything: .jsonl, .json, or a folder of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from deepstone.errors import RefusedInputError, UsageError
from deepstone.faults import reason
from deepstone.records.read import parse_json
from deepstone.records.schema import MAX_RECORD_BYTES, Record
from deepstone.store.files import open_regular
from deepstone.store.findings import KINDS
from deepstone.store.recordfile import MAX_JSONL_BYTES
from deepstone.store.runfile import unwrap

Named = tuple[str, Mapping[str, Any]]

_SUFFIXES: Final = (".jsonl", ".json")
_REMEDY: Final = "give a file that --json or `results export` wrote, or a folder of such files"


def read_elsewhere(path: Path) -> tuple[list[Record], list[Named]]:
    """Records; findings with their ids or, without one, the file's name. UsageError names the file and line."""
    if path.is_dir():
        files = sorted(entry for entry in path.iterdir() if entry.suffix in _SUFFIXES)
        if not files:
            raise UsageError(f"{path}: holds no .json or .jsonl file; {_REMEDY}")
    else:
        files = [path]
    records: list[Record] = []
    findings: list[Named] = []
    for file in files:
        for where, content in _contents(file):
            finding = cast(dict[str, Any], content) if isinstance(content, dict) else {}
            if finding.get("kind") in KINDS:
                findings.append((str(finding.get("id", file.name)), finding))
            else:
                records.append(_record(cast(object, content), where))
    return records, findings


def _record(content: object, where: str) -> Record:
    try:
        return unwrap(content)
    except RefusedInputError as error:
        raise RefusedInputError(f"{where}: neither a record nor a finding: {error}; {_REMEDY}") from error


def _contents(file: Path) -> Iterator[tuple[str, object]]:
    """Every JSON value of a file with its place: the lines of .jsonl, the entries of a list, or the file itself."""
    try:
        with open_regular(file) as opened:
            data = opened.read((MAX_JSONL_BYTES if file.suffix == ".jsonl" else MAX_RECORD_BYTES) + 1)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {reason(error)}; {_REMEDY}") from error
    if file.suffix == ".jsonl":
        for number, line in enumerate(data.splitlines(), start=1):
            if line.strip():
                yield f"{file}, line {number}", _parsed(line, f"{file}, line {number}")
        return
    content = _parsed(data, str(file))
    if isinstance(content, list):
        for number, entry in enumerate(cast(list[object], content), start=1):
            yield f"{file}, record {number}", entry
    else:
        yield str(file), content


def _parsed(data: bytes, where: str) -> object:
    try:
        return parse_json(data)
    except RefusedInputError as error:
        raise RefusedInputError(f"{where}: {error}; {_REMEDY}") from error
