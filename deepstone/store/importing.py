"""Taking in runs measured elsewhere: everything is read and checked before anything is written."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from deepstone.errors import RefusedInputError, StoreError
from deepstone.faults import reason
from deepstone.records.identity import canonical_sha256
from deepstone.store.faults import remedy
from deepstone.store.recordfile import Entry, entries, opened, refused
from deepstone.store.store import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """How many runs were new, and how many the store had already."""

    added: int
    skipped: int


def import_records(store: Store, path: Path) -> Imported:
    """Adds the file's runs under the ids they have; RefusedInputError when one is no good, and then none is added."""
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


def _check_all(store: Store, path: Path, file: BinaryIO) -> dict[str, str]:
    """The SHA-256 of every run in the file by id, once all are known to be good and in conflict with none."""
    checked: dict[str, str] = {}
    for entry in entries(path, file):
        run, sha256 = entry.record["id"], entry.sha256
        if checked.setdefault(run, sha256) != sha256:
            raise refused(path, entry.place, f"the file holds another run {run}")
        if _kept(store, entry) not in (None, sha256):
            raise refused(path, entry.place, _conflict(run))
    if not checked:
        raise refused(path, "", "holds no records")
    return checked


def _write_all(store: Store, path: Path, file: BinaryIO, checked: dict[str, str]) -> Imported:
    """The second reading: what was checked, and nothing else, is written."""
    added = skipped = 0
    try:
        for entry in entries(path, file):
            if checked.get(entry.record["id"]) != entry.sha256:
                raise refused(path, entry.place, "is not what was checked")
            if _insert(store, path, entry, added):
                added += 1
            else:
                skipped += 1
    except RefusedInputError as error:
        raise RefusedInputError(f"{path}: changed during the import; {added} runs were added before") from error
    return Imported(added=added, skipped=skipped)


def _insert(store: Store, path: Path, entry: Entry, added: int) -> bool:
    try:
        kept = store.findings.insert(dict(entry.record)) if entry.is_finding else store.insert(entry.record)
        if kept:
            return True
    except OSError as error:
        raise StoreError(
            f"cannot write to the store {store.root}: {reason(error)}; {added} runs were added: {remedy(error)}, "
            f"then import {path} again"
        ) from error
    if _kept(store, entry) != entry.sha256:
        run = entry.record["id"]
        raise StoreError(f"another process added {run} meanwhile; {added} runs were added: import {path} again")
    return False


def _kept(store: Store, entry: Entry) -> str | None:
    """The SHA-256 of the record that the store has under this id; StoreError when its file is damaged."""
    run = entry.record["id"]
    if entry.is_finding:
        return canonical_sha256(store.findings.get(run)) if store.findings.has(run) else None
    return canonical_sha256(store.get(run)) if store.has(run) else None


def _conflict(run: str) -> str:
    return f"the store holds {run} with other content (a redacted copy of a run differs from it)"
