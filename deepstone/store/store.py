"""The store: runs are added, found, listed and deleted, never changed. When `add` returns, the run is on the disk.

It also has findings, the state of each study and the log of each search: one file, rewritten each time.
"""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from deepstone.durable import make_folder
from deepstone.errors import RefusedInputError, StoreError, UsageError, reason
from deepstone.results import codec
from deepstone.results.findings import Finding
from deepstone.results.identity import JOB_PATTERN, RUN_PATTERN, attempt_of, run_id
from deepstone.results.plain import MAX_BYTES, is_object, parse_json
from deepstone.results.record import Draft, Record
from deepstone.results.searched import Searched
from deepstone.results.study import StudyState
from deepstone.results.tune import Tuned, TuneLog
from deepstone.store import catalog, claims
from deepstone.store.claims import Claim
from deepstone.store.files import open_regular, replace_file, temporary
from deepstone.store.findings import Findings
from deepstone.store.layout import Damage, Layout, as_store_error, attempts_of, clean, open_layout, remedy, scan
from deepstone.store.rescue import Numbering, insert
from deepstone.store.rows import Filters, Listing, Row
from deepstone.store.sealed import read_record

_S = TypeVar("_S", StudyState, TuneLog)
_PREFIX: Final = re.compile(r"[0-9a-f]{1,20}|[0-9a-f]{20}-[0-9]{0,9}")
_PROBE_BYTES: Final = 64 * 2**10
_STATE_NAME: Final = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
)  # protects the file system from names that users give
_IN_EVERY_STATE: Final = frozenset({"schema", "kind", "title", "started_at", "resume"})


class Store(Struct, frozen=True, kw_only=True):
    """It has no state except the folder: several processes and threads may use one store at once."""

    layout: Layout

    @staticmethod
    def open(path: Path, *, create: bool = True) -> Store:
        """Open the store in this folder. Raises StoreError if there is none and it may not or cannot be created."""
        return Store(layout=open_layout(path, create=create))

    @property
    def root(self) -> Path:
        return self.layout.root

    @property
    def findings(self) -> Findings:
        return Findings(layout=self.layout)

    @property
    def studies(self) -> StudyStates:
        kind, required = StudyState, _IN_EVERY_STATE
        return StudyStates(layout=self.layout, folder=self.layout.studies, kind=kind, required=required)

    @property
    def tunes(self) -> TuneLogs:
        return TuneLogs(layout=self.layout, folder=self.layout.tunes, kind=TuneLog)

    def searched(self) -> Searched:
        """What the searches of this store say about the runs that they made."""
        contents = (finding.content for finding in self.findings.list(Tuned.KIND))
        return Searched.of([*(each for each in contents if isinstance(each, Tuned)), *self.tunes.list()])

    def probe(self) -> None:
        """Raise StoreError unless a run could be written now. Call it before a long measurement."""
        with as_store_error("write to", self.root):
            for folder in (self.layout.tmp, self.layout.claims, self.layout.runs):
                make_folder(folder)
                with temporary(bytes(_PROBE_BYTES), folder=folder):
                    pass

    def add(self, draft: Draft) -> Record:
        """Give the run its id and store it, as `Numbering` describes."""
        return Numbering(
            layout=self.layout,
            job=draft.job,
            numbered=lambda attempt: Record.of(draft, run_id(draft.job, attempt)),
            attempts=lambda: attempts_of(self.layout, draft.job),
            insert=self.insert,
            check=codec.as_record,
        ).add(draft)

    def insert(self, record: Record) -> bool:
        """Store a checked record under its id; return False if that id is taken. Raises OSError if writing fails."""
        return insert(self.layout, record, self.layout.run_file(record.id))

    def claim_job(self, job: str) -> Claim | None:
        """Claim a job for this process (use it in a `with`); return None if another running process has it."""
        if not JOB_PATTERN.fullmatch(job):
            raise UsageError(f"{job!r} is not the name of a job: 64 hexadecimal digits")
        with as_store_error("write to", self.root):
            return claims.take(self.layout.claims, job)

    def runs_of(self, job: str) -> tuple[str, ...]:
        """Return the ids of all valid runs of a job, oldest first, under any of its names."""
        rows = self.list(Filters(job=job)).rows
        return tuple(row.id for row in sorted(rows, key=lambda row: (row.started_at, attempt_of(row.id))))

    def attempts(self, job: str) -> tuple[str, ...]:
        """Return the ids of all runs under this very name of a job that have a file, valid or not."""
        with as_store_error("read", self.root):
            return tuple(run_id(job, attempt) for attempt in attempts_of(self.layout, job))

    def has(self, run: str) -> bool:
        """Whether there is a file for this run, valid or not."""
        with as_store_error("read", self.root):
            return self.layout.run_file(run).exists()

    def resolve(self, prefix: str) -> str:
        """Return the one id that starts with `prefix`. Raises UsageError if there is none or more than one."""
        return self._resolve(prefix, "run", lambda: scan(self.layout).runs)

    def resolve_any(self, prefix: str) -> str:
        """Do the same among runs and findings."""
        return self._resolve(prefix, "run or finding", lambda: scan(self.layout).runs | {*self.findings.ids()})

    def _resolve(self, prefix: str, what: str, known: Callable[[], Iterable[str]]) -> str:
        start = prefix.lower()
        with as_store_error("read", self.root):
            if RUN_PATTERN.fullmatch(start) and self.layout.run_file(start).exists():
                return start
            ids = known() if _PREFIX.fullmatch(start) else ()
        found = sorted(id for id in ids if id == start) or sorted(id for id in ids if id.startswith(start))
        if len(found) == 1:
            return found[0]
        if not found:
            raise UsageError(
                f"no {what} {prefix[:80]!r} in the store {self.root}; `deepstone results list` shows those there are"
            )
        some = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
        whats = "runs" if what == "run" else "runs or findings"
        raise UsageError(f"{prefix!r} begins {len(found)} {whats}: {some}; give more of the id")

    def get(self, prefix: str) -> Record:
        """Return the record of the run with this id or unique prefix. Raises StoreError if its file is damaged."""
        run = self.resolve(prefix)
        path = self.layout.run_file(run)
        try:
            return read_record(path, run).result
        except RefusedInputError as error:
            raise _damaged(path, str(error)) from error
        except OSError as error:
            raise StoreError(f"cannot read {path}: {reason(error)}; {remedy(error)}") from error

    def get_any(self, prefix: str) -> Record | Finding:
        """Do the same for a run or a finding."""
        id = self.resolve_any(prefix)
        return self.get(id) if self.layout.run_file(id).exists() else self.findings.get(id)

    def records(self, rows: Iterable[Row], *, damaged: builtins.list[Damage] | None = None) -> Iterator[Record]:
        """Yield the records of rows of a listing, one in memory at a time; deleted ones are left out.

        An unreadable file raises StoreError; if a list `damaged` is given, the file goes there instead.
        """
        found: builtins.list[Damage] = [] if damaged is None else damaged
        for record in catalog.records(self.layout, rows, found):
            _refuse(found if damaged is None else ())
            yield record
        _refuse(found if damaged is None else ())

    def list(self, filters: Filters | None = None) -> Listing:
        """Return the matching runs, and every file that could not be read."""
        with as_store_error("read", self.root):
            return catalog.listing(self.layout, filters or Filters())

    def delete(self, prefix: str) -> str:
        """Remove a run or finding for good, damaged or not; return its id."""
        id = self.resolve_any(prefix)
        with as_store_error("write to", self.root):
            self.layout.run_file(id).unlink(missing_ok=True)
            self.layout.finding_file(id).unlink(missing_ok=True)
        return id

    def rebuild(self) -> Listing:
        """Verify every file, rebuild the index, and remove the files of killed processes."""
        clean(self.layout)
        with as_store_error("read", self.root):
            listing = catalog.rebuild(self.layout)
        return replace(listing, damaged=(*listing.damaged, *self.findings.damaged()))


def _refuse(damaged: Iterable[Damage]) -> None:
    for damage in damaged:
        raise _damaged(damage.path, damage.reason)


def _damaged(path: Path, why: str) -> StoreError:
    return StoreError(f"{path} is damaged ({why}); remove it, and import the run again if you have a copy of it")


class _StateFiles(Struct, Generic[_S], frozen=True, kw_only=True):
    """A file for each name, rewritten each time. Runs and findings are the truth, so a damaged file counts as missing.

    `required`: keys that every file has.
    """

    layout: Layout
    folder: Path
    kind: type[_S]
    required: frozenset[str] = frozenset()

    def write(self, state: _S) -> None:
        """Raises StoreError if writing fails."""
        data = json.dumps(state.to_json(), ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"
        assert _STATE_NAME.fullmatch(state.name), state.name
        with as_store_error("write to", self.layout.root):
            make_folder(self.layout.tmp)
            make_folder(self.folder)
            replace_file(data, self.folder / f"{state.name}.json", tmp=self.layout.tmp)

    def get(self, name: str) -> _S | None:
        """Return None if there is no readable state."""
        return self._read(self.folder / f"{name}.json") if _STATE_NAME.fullmatch(name) else None

    def list(self) -> builtins.list[_S]:
        """Return the readable files, oldest first."""
        with as_store_error("read", self.layout.root):
            try:
                paths = [path for path in self.folder.iterdir() if path.suffix == ".json"]
            except FileNotFoundError:
                return []
        found = [state for path in paths if (state := self._read(path)) is not None]
        return sorted(found, key=lambda state: (state.started_at, state.name))

    def _read(self, path: Path) -> _S | None:
        try:
            with open_regular(path) as file:
                content = parse_json(file.read(MAX_BYTES + 1))
            return codec.convert(content, self.kind) if is_object(content) and content.keys() >= self.required else None
        except (OSError, RefusedInputError):
            return None


class StudyStates(_StateFiles[StudyState], frozen=True, kw_only=True):
    """Of studies; a study rebuilds a missing one."""


class TuneLogs(_StateFiles[TuneLog], frozen=True, kw_only=True):
    """The searches that this store knows."""

    def claim(self, name: str) -> Claim:
        """Claim a search for this process; use it in a `with`. Raises StoreError if another running process has it."""
        claimed = f"tune-{name}"
        with as_store_error("write to", self.layout.root):
            claim = claims.take(self.layout.claims, claimed)
            owner = claims.owner_of(self.layout.claims, claimed)
        if claim is not None:
            return claim
        who = "another process" if owner is None else f"process {owner.pid}"
        where, gone = "", ""
        if owner is not None and owner.is_elsewhere:
            where = f" on {owner.host}"
            gone = f"; if there is no such process any more, remove {self.layout.claims / claimed}.claim"
        raise StoreError(
            f"{who}{where} is at this very search, and two would disturb each other: wait until it ends, or end it and "
            f"give the same command again, which goes on with its looks{gone}"
        )
