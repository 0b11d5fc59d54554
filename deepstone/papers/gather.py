"""Collects the evidence for verdicts: the runs and findings of a store, and of files from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from deepstone.errors import RefusedInputError, UsageError, reason
from deepstone.papers.evidence import Evidence, Named, evidence_of
from deepstone.papers.paper import Paper
from deepstone.results.codec import as_bare_finding
from deepstone.results.findings import KINDS, Finding
from deepstone.results.plain import MAX_BYTES, is_list, is_object, parse_json
from deepstone.results.record import Record
from deepstone.store.files import open_regular
from deepstone.store.importing import MAX_JSONL_BYTES
from deepstone.store.layout import Damage, Layout
from deepstone.store.sealed import unsealed
from deepstone.store.store import Store

_SUFFIXES: Final = (".jsonl", ".json")
_NO_EVIDENCE: Final = ("study", "paper", "chart", "report")  # kinds of our files without measurements
_REMEDY: Final = "give a file that --json or `results export` wrote, or a folder of such files"


def gather(
    papers: Sequence[Paper], store: Path, also: Sequence[Path], damaged: list[Damage], skipped: list[str] | None = None
) -> Evidence:
    """A missing store counts as empty. A run that is in the store and in a file counts once.

    Unreadable files of the store go to `damaged`, and the others count. `skipped` collects messages about files in
    folders of `also` that have no measurement.
    """
    records: list[Record] = []
    findings: list[Named] = []
    if Layout(root=store).format.exists():
        opened = Store.open(store, create=False)
        records = _records(opened, _models(papers), damaged)
        damaged += opened.findings.damaged()
        findings = [(str(finding.id), finding) for finding in opened.findings.list()]
    own = evidence_of(records, findings)
    known = {record.id for record in records} | {id for id, _ in findings}
    for path in also:
        more, found = read_elsewhere(path, skipped)
        records += [record for record in more if record.id not in known]
        findings += [(id, finding) for id, finding in found if id not in known]
    return evidence_of(records, findings, own=own.places) if also else own


def _records(store: Store, models: frozenset[str], damaged: list[Damage]) -> list[Record]:
    """Read only runs of networks that a paper needs: a store may have thousands of others."""
    listing = store.list()
    damaged += listing.damaged
    rows = [row for row in listing.rows if row.model in models]
    return list(store.records(rows, damaged=damaged))


def _models(papers: Sequence[Paper]) -> frozenset[str]:
    readers = [
        *(use.rule for paper in papers for claim in paper.claims for use in claim.rules),
        *(figure.builder for paper in papers for figure in paper.figures),
    ]
    return frozenset(network for reader in readers for network in reader.networks)


def read_elsewhere(path: Path, skipped: list[str] | None = None) -> tuple[list[Record], list[Named]]:
    """Return records, and findings with their ids or else the file's name. Raises UsageError with file and line.

    Files of ours without measurements (study states, verdicts, charts) are skipped in a folder and listed in `skipped`;
    given by name, they are refused.
    """
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
            kind = _kind(content)
            if kind in KINDS:
                finding = _finding(content, where, kind)
                findings.append((finding.id or file.name, finding))
            elif kind in _NO_EVIDENCE:
                message = f"{where}: is of kind {kind}, which holds no measurement"
                if not path.is_dir():
                    raise RefusedInputError(f"{message}; {_REMEDY}")
                if skipped is not None:
                    skipped.append(message)
            else:
                records.append(_record(content, where))
    return records, findings


def _record(content: object, where: str) -> Record:
    try:
        result = unsealed(content)
        if not isinstance(result, Record):
            raise RefusedInputError("is not a record")
        return result
    except RefusedInputError as error:
        raise RefusedInputError(f"{where}: neither a record nor a finding: {error}; {_REMEDY}") from error


def _kind(content: object) -> str:
    return str(content.get("kind", "")) if is_object(content) else ""


def _finding(content: object, where: str, kind: str) -> Finding:
    try:
        return as_bare_finding(content)
    except RefusedInputError as error:
        raise RefusedInputError(f"{where}: is not as `deepstone {kind} --json` writes it: {error}") from error


def _contents(file: Path) -> Iterator[tuple[str, object]]:
    """Yield every JSON value of a file with its place: the lines of .jsonl, the entries of a list, or the file
    itself."""
    try:
        with open_regular(file) as opened:
            data = opened.read((MAX_JSONL_BYTES if file.suffix == ".jsonl" else MAX_BYTES) + 1)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {reason(error)}; {_REMEDY}") from error
    if file.suffix == ".jsonl":
        for number, line in enumerate(data.splitlines(), start=1):
            if line.strip():
                yield f"{file}, line {number}", _parsed(line, f"{file}, line {number}")
        return
    content = _parsed(data, str(file))
    if is_list(content):
        for number, entry in enumerate(content, start=1):
            yield f"{file}, record {number}", entry
    else:
        yield str(file), content


def _parsed(data: bytes, where: str) -> object:
    try:
        return parse_json(data)
    except RefusedInputError as error:
        raise RefusedInputError(f"{where}: {error}; {_REMEDY}") from error
