"""Imports results from a file that `export` wrote. The file is untrusted.

The file has one record or finding (as stored, or bare), a JSON list of them, or one per line (JSONL). Everything is
read and checked before anything is written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from msgspec import Struct, field
from msgspec.structs import replace

from deepstone.errors import RefusedInputError, StoreError, UsageError, reason
from deepstone.results import codec
from deepstone.results.findings import KINDS, Finding
from deepstone.results.identity import JOB_PART, attempt_of, canonical_sha256, run_id
from deepstone.results.parts import Json
from deepstone.results.plain import is_list, is_object, parse_json, shown
from deepstone.results.record import Record
from deepstone.results.tune import Tuned
from deepstone.store.files import open_regular
from deepstone.store.layout import remedy
from deepstone.store.rescue import next_attempt
from deepstone.store.sealed import MAX_FILE_BYTES, unsealed
from deepstone.store.store import Store

MAX_JSONL_BYTES: Final = 2**30

# What a command printed with --json is no run and no finding; the error says what it is.
_EXPORT: Final = "import what `deepstone results export -o runs.jsonl` writes where it was measured"
# By `kind`: what printed it.
_PRINTED_KINDS: Final[Mapping[str, str]] = {
    **{kind: f"deepstone {kind} --json" for kind in (*KINDS, "scale", "report")},
    "peaks": "deepstone doctor --peaks --json",
    "paper": "deepstone papers --json",
    "study": "deepstone study --json",
}
# By keys that only it has.
_PRINTED_KEYS: Final[Mapping[frozenset[str], str]] = {
    frozenset({"pairing", "verdict"}): "deepstone compare --json",
    frozenset({"pairing", "ranks"}): "deepstone compare --json",
    frozenset({"reference", "frameworks"}): "deepstone verify --json",
    frozenset({"advice", "facts"}): "deepstone advise --json",
    frozenset({"can_run"}): "--dry-run --json",
    frozenset({"starts", "looks"}): "deepstone tune --dry-run --json",
    frozenset({"requested", "started_at", "outcome"}): "deepstone results list --json",
}
_NAME: Final = re.compile(rf"[0-9a-f]{{{JOB_PART}}}-[1-9][0-9]*")  # of a run or a finding
_OF_RESULTS: Final = ("identity", "samples", "task", "record", "finding")  # a run or a finding has one of them


class Imported(Struct, frozen=True, kw_only=True):
    """How many runs were new, and how many the store already had. `renumbered`: how many of the new ones got another
    number, because the store has another run under their name."""

    added: int
    skipped: int
    renumbered: int = 0


class _Print(Struct, frozen=True, kw_only=True):
    """What tells whether two results of one job are the same: the content without its name, its names here and where it
    comes from, when it was measured, and its samples (empty where there are none)."""

    content: str
    names: frozenset[str]
    started_at: str
    samples: str

    @staticmethod
    def of(result: Record | Finding) -> _Print:
        samples = result.samples.to_json() if isinstance(result, Record) and result.samples.launches else None
        return _Print(
            content=codec.sha256(nameless(result)),
            names=frozenset(str(name) for name in (result.id, result.origin) if name),
            started_at=str(result.started_at),
            samples="" if samples is None else canonical_sha256(samples),
        )

    def is_copy_of(self, other: _Print) -> bool:
        """Whether both are of one measurement. No two with one name have the same samples, or begin at one moment."""
        same = self.started_at == other.started_at or (self.samples != "" and self.samples == other.samples)
        return same and bool(self.names & other.names)


def nameless(result: Record | Finding) -> Record | Finding:
    """Without what import may change: its number, where that number comes from, and the numbers of the runs that a
    finding names."""
    task = result.task if isinstance(result, Finding) else result.job
    if isinstance(result, Finding):
        result = _with_names(result, lambda name: run_id(name.partition("-")[0], 1) if _NAME.fullmatch(name) else name)
    return replace(result, id=run_id(str(task), 1), origin=None)


def _with_names(finding: Finding, renamed: Callable[[str], str]) -> Finding:
    """The finding with other names for the runs and findings that it rests on."""

    def walk(value: Json) -> Json:
        if isinstance(value, str):
            return renamed(value)
        if isinstance(value, list):
            return [walk(each) for each in value]
        return {key: walk(each) for key, each in value.items()} if isinstance(value, dict) else value

    content = None if finding.content is None else walk(finding.content.to_json())
    return codec.as_finding({**finding.to_json(), **content}) if isinstance(content, dict) else finding


def import_records(store: Store, path: Path) -> Imported:
    """Add the file's runs. One whose name the store has given to another run gets the next number, and keeps its own as
    `origin`: equal machines name their runs alike. Raises RefusedInputError if one is invalid; then none is added."""
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


def _check_all(store: Store, path: Path, file: BinaryIO) -> frozenset[str]:
    """Check that all runs in the file are valid and conflict with none in the store. Return their SHA-256."""
    checked: set[str] = set()
    known = _Known(store)
    for entry in entries(path, file):
        try:
            is_new = known.add(entry)
        except _Altered as copy:
            raise refused(path, entry.place, str(copy)) from None
        checked.add(entry.sha256)
        if is_new:
            _check_numbers(path, entry)
    if not checked:
        raise refused(path, "", "holds no records")
    return frozenset(checked)


class _Altered(Exception):
    """Another copy of a run differs from it."""


class _Known:
    """The runs of the store and those of the file so far, by job."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._prints: dict[str, dict[_Print, str]] = {}  # by job: where each is

    def add(self, entry: Entry) -> bool:
        """Whether it is new. Raises _Altered if it is another copy of a known run."""
        job, mine = entry.job, _Print.of(entry.result)
        if job not in self._prints:
            self._prints[job] = dict.fromkeys(_stored_prints(self._store, entry), "the store")
        known = self._prints[job]
        if any(each.content == mine.content for each in known):
            return False
        copy = next((where for each, where in known.items() if mine.is_copy_of(each)), None)
        if copy is not None:
            raise _Altered(f"{copy} holds {entry.id} with other content (a redacted copy of a run differs from it)")
        known[mine] = "the file"
        return True


def _stored_prints(store: Store, entry: Entry) -> Iterator[_Print]:
    """Those of all attempts at the entry's job. Raises StoreError if the file that it would take is damaged."""
    is_finding = isinstance(entry.result, Finding)
    for id in store.findings.of_task(entry.job) if is_finding else store.attempts(entry.job):
        try:
            yield _Print.of(store.findings.get(id) if is_finding else store.get(id))
        except (StoreError, UsageError):  # damaged, or deleted meanwhile
            if id == entry.id and (store.findings.has(id) if is_finding else store.has(id)):
                raise


def _check_numbers(path: Path, entry: Entry) -> None:
    if isinstance(entry.result, Finding):
        return
    from deepstone.store.contradictions import check_consistent  # it imports NumPy, which an invalid file does not need

    try:
        check_consistent(entry.result)
    except RefusedInputError as error:
        raise refused(path, entry.place, str(error)) from None


def _write_all(store: Store, path: Path, file: BinaryIO, checked: frozenset[str]) -> Imported:
    """Read the file a second time and write exactly what was checked. Where a run gets another number, the findings
    that name it follow. The answers of searches are written last, because they also name findings."""
    added = skipped = renumbered = 0
    renamed: dict[str, str] = {}
    searches: list[tuple[Entry, Mapping[str, str]]] = []

    def write(entry: Entry, names: Mapping[str, str]) -> None:
        nonlocal added, skipped, renumbered
        if isinstance(entry.result, Finding):
            entry = Entry(place=entry.place, result=_with_names(entry.result, lambda name: names.get(name, name)))
        id = _insert(store, path, entry, added)
        added, skipped = added + (id is not None), skipped + (id is None)
        renumbered += id not in (None, entry.id)
        now = id or _id_of_copy(store, entry)
        renamed.pop(entry.id, None)
        if now != entry.id:
            renamed[entry.id] = now

    try:
        for entry in entries(path, file):
            if entry.sha256 not in checked:
                raise refused(path, entry.place, "is not what was checked")
            if isinstance(entry.result, Finding) and isinstance(entry.result.content, Tuned):
                searches.append((entry, dict(renamed)))
            else:
                write(entry, renamed)
    except RefusedInputError as error:
        raise RefusedInputError(f"{path}: changed during the import; {added} runs were added before") from error
    for entry, names in searches:
        write(entry, {**renamed, **names})
    return Imported(added=added, skipped=skipped, renumbered=renumbered)


def _id_of_copy(store: Store, entry: Entry) -> str:
    """The name under which the store has it."""
    mine, is_finding = codec.sha256(nameless(entry.result)), isinstance(entry.result, Finding)
    for id in store.findings.of_task(entry.job) if is_finding else store.attempts(entry.job):
        with suppress(StoreError, UsageError):  # damaged, or deleted meanwhile
            if codec.sha256(nameless(store.findings.get(id) if is_finding else store.get(id))) == mine:
                return id
    return entry.id


def _insert(store: Store, path: Path, entry: Entry, added: int) -> str | None:
    """Return the id under which it is stored now; None if the store had it."""
    result = entry.result
    try:
        while True:
            if store.findings.insert(result) if isinstance(result, Finding) else store.insert(result):
                return str(result.id)
            try:
                if not _Known(store).add(entry):
                    return None
            except _Altered as copy:
                raise StoreError(f"another process added a copy: {copy}; {added} runs were added") from None
            attempts = store.findings.of_task(entry.job) if isinstance(result, Finding) else store.attempts(entry.job)
            result = _renumbered(entry.result, next_attempt(map(attempt_of, attempts)))
    except OSError as error:
        raise StoreError(
            f"cannot write to the store {store.root}: {reason(error)}; {added} runs were added: {remedy(error)}, "
            f"then import {path} again"
        ) from error


def _renumbered(result: Record | Finding, attempt: int) -> Record | Finding:
    task = result.task if isinstance(result, Finding) else result.job
    return replace(result, id=run_id(str(task), attempt), origin=result.origin or result.id)


class Entry(Struct, frozen=True, kw_only=True):
    """One record or finding of the file, and its place there for messages."""

    place: str
    result: Record | Finding

    @property
    def id(self) -> str:
        assert self.result.id is not None, "it is checked to have one"
        return self.result.id

    @property
    def job(self) -> str:
        return str(self.result.task) if isinstance(self.result, Finding) else self.result.job

    @property
    def sha256(self) -> str:
        return codec.sha256(self.result)


def read_records(path: Path) -> list[Record]:
    """Return all records of the file. Raises RefusedInputError if there is none, or if one is invalid."""
    return read_searched_records(path)[0]


def read_searched_records(path: Path, names: Names | None = None) -> tuple[list[Record], list[Tuned]]:
    """Do the same, with the answers of the searches in the file, which say what these made of their runs. `names`:
    those of the files before it."""
    try:
        with opened(path) as file:
            results = [entry.result for entry in entries(path, file)]
    except OSError as error:
        raise RefusedInputError(f"{path}: cannot be read: {reason(error)}") from error
    known, renamed = names or Names(), dict[str, str]()
    records = [known.apart(result, renamed) for result in results if isinstance(result, Record)]
    if not records:
        raise refused(path, "", "holds no records")
    searches = (each for each in results if isinstance(each, Finding) and isinstance(each.content, Tuned))
    findings = (_with_names(each, lambda name: renamed.get(name, name)) if renamed else each for each in searches)
    return records, [each.content for each in findings if isinstance(each.content, Tuned)]


class Names(Struct, kw_only=True):
    """The names of the runs of several files. Equal machines, and stores of their own, name theirs alike; as on import,
    a second run of a name gets the next number that is free. `began`: when the run of a name began."""

    began: dict[str, str] = field(default_factory=dict[str, str])

    @staticmethod
    def of(store: Store) -> Names:
        return Names(began={row.id: row.started_at for row in store.list().rows})

    def apart(self, record: Record, renamed: dict[str, str]) -> Record:
        """The run under a name of its own. Copies of one run keep one name."""
        name, attempt = record.id, 0
        while self.began.setdefault(name, record.started_at) != record.started_at:
            attempt += 1
            name = run_id(record.job, attempt)
        if name == record.id:
            return record
        renamed[record.id] = name
        return replace(record, id=name, origin=record.origin or record.id)


def entries(path: Path, file: BinaryIO) -> Iterator[Entry]:
    """Yield the file's checked records; from JSONL, one in memory at a time."""
    file.seek(0)
    first = file.readline(MAX_FILE_BYTES + 1)
    file.seek(0)
    contents = _lines(path, file) if _is_jsonl(first) else _document(path, file)
    for place, content in contents:
        other = _answer_of_command(content)
        if other:
            raise refused(path, place, other)
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


def _answer_of_command(content: object) -> str:
    """Say what this is if it is the answer of a command, and what to import instead; nothing if it may be a result."""
    if not is_object(content) or any(key in content for key in _OF_RESULTS):
        return ""
    kind, id = content.get("kind"), content.get("id")
    printed = _PRINTED_KINDS.get(kind, "") if isinstance(kind, str) else ""
    printed = printed or next((command for keys, command in _PRINTED_KEYS.items() if keys <= content.keys()), "")
    if not printed:
        return ""
    stored = f"; the store there has it as {shown(id)}" if isinstance(id, str) and kind in _PRINTED_KINDS else ""
    return f"is what `{printed}` printed, an answer and not a stored run or finding{stored}; {_EXPORT}"
