"""Gives a run or finding its number and its file. If the store fails, saves it elsewhere, to be imported later."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from deepstone.absent import Absent
from deepstone.durable import make_folder, sync_folder
from deepstone.errors import InternalError, RefusedInputError, StoreError, reason
from deepstone.results.findings import Finding
from deepstone.results.identity import JOB_PART
from deepstone.results.parts import Json, Part
from deepstone.results.record import Draft, Record
from deepstone.store import claims
from deepstone.store.files import publish
from deepstone.store.layout import Layout, remedy
from deepstone.store.sealed import seal

R = TypeVar("R", Record, Finding)

# The store numbers attempts from 1. Outside it, a large random number is used, so that the two cannot meet on import.
FIRST_RESCUED_ATTEMPT: Final = 100_000_000
_RESCUED_ATTEMPTS: Final = 900_000_000


def next_attempt(known: Iterable[int]) -> int:
    return 1 + max((attempt for attempt in known if attempt < FIRST_RESCUED_ATTEMPT), default=0)


class Numbering(Struct, Generic[R], frozen=True, kw_only=True):
    """Gives a result its id: `job` is the name, `numbered` adds an attempt's id, `attempts` lists the existing ones."""

    layout: Layout
    job: str
    numbered: Callable[[int], R]
    attempts: Callable[[], Iterable[int]]
    insert: Callable[[R], bool]
    check: Callable[[dict[str, Json]], R]

    def add(self, draft: Draft | Finding) -> R:
        """Give the result its id and store it. If the disk (StoreError) or our own rules (InternalError) refuse it,
        save it elsewhere; the message says where."""
        what = "finding" if isinstance(draft, Finding) else "record"
        try:
            if isinstance(draft, Record | Finding) and draft.id is not None:
                raise RefusedInputError("id: is given by the store; leave it out")
            self.check(self.numbered(1).to_json())
            attempt = next_attempt(self.attempts())
            while not self.insert(result := self.numbered(attempt)):
                attempt += 1
            return result
        except (RefusedInputError, TypeError) as error:  # TypeError: JSON has no such type
            raise save_refused(draft, self.job, error, what) from error
        except OSError as error:
            raise self._rescued(error) from error

    def _rescued(self, error: OSError) -> StoreError:
        failed = f"cannot write to the store {self.layout.root}: {reason(error)}"
        result = self.numbered(FIRST_RESCUED_ATTEMPT + secrets.randbelow(_RESCUED_ATTEMPTS))
        what = "finding" if isinstance(result, Finding) else "run"
        try:
            path = save_elsewhere(seal(result), str(result.id), what)
        except StoreError as lost:
            return StoreError(f"{failed}; {lost}; {remedy(error)}")
        return StoreError(
            f"{failed}; the {what} is saved in {path}: {remedy(error)}, then `deepstone results import {path}`"
        )


def insert(layout: Layout, result: Record | Finding, target: Path) -> bool:
    """Store a checked result under its id; return False if that id is taken. Raises OSError if writing fails."""
    assert result.id is not None, "it is checked to have one"
    data = seal(result)
    make_folder(layout.tmp)
    make_folder(target.parent)
    sync_folder(target.parent.parent)  # another process may have created the folder without syncing it yet
    claim = claims.take(layout.claims, result.id)
    if claim is None:
        return False
    with claim:
        return publish(data, target, tmp=layout.tmp)


def save_refused(measured: Mapping[str, object] | Part, job: str, why: Exception, what: str) -> InternalError:
    """Save raw results that our own code cannot turn into a record: our bug must not cost a measurement."""
    cause = str(why) if isinstance(why, RefusedInputError) else f"{type(why).__name__}: {why}"
    fault = f"Deepstone made a {what} that it cannot keep ({cause}); this is a fault of Deepstone itself"
    try:
        path = save_elsewhere(_as_is(measured), f"refused-{job[:JOB_PART]}", what)
    except StoreError as lost:
        return InternalError(f"{fault}; {lost}")
    return InternalError(f"{fault}: everything measured is saved in {path}; please report it with that file")


def _as_is(measured: Mapping[str, object] | Part) -> bytes:
    try:
        return json.dumps(measured, indent=1, default=_written).encode("ascii")
    except (TypeError, ValueError):  # JSON has no such keys
        return repr(measured).encode("utf-8", "backslashreplace")


def _written(value: object) -> object:
    if isinstance(value, Part):
        return {name: part for name in value.__struct_fields__ if (part := getattr(value, name)) is not None}
    if isinstance(value, Struct):
        return asdict(value)
    return value.to_json() if isinstance(value, Absent) else repr(value)


def save_elsewhere(data: bytes, name: str, what: str, folders: Iterable[Path] | None = None) -> Path:
    """Write the file of a run or a finding into the first folder that accepts it."""
    tried: list[str] = []
    for folder in _last_resorts() if folders is None else folders:
        try:
            return _write(data, folder, name)
        except OSError:
            tried.append(str(folder))
    raise StoreError(f"the {what} could not be saved in {' or '.join(tried) or 'any folder'} either: it is lost")


def _last_resorts() -> Iterator[Path]:
    with suppress(FileNotFoundError):  # no temporary folder is writable
        yield Path(tempfile.gettempdir())
    with suppress(RuntimeError):  # the user has no home
        yield Path.home()


def _write(data: bytes, folder: Path, run: str) -> Path:
    descriptor, name = tempfile.mkstemp(prefix=f"deepstone-{run}-", suffix=".json", dir=folder)
    path = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return path
