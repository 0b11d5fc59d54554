"""The last resort for a run or finding that the store cannot take: a file elsewhere, which can be imported later."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from deepstone.absent import Absent
from deepstone.errors import InternalError, RefusedInputError, StoreError
from deepstone.results import codec
from deepstone.results.identity import JOB_PART, run_id
from deepstone.results.parts import Part
from deepstone.results.record import Draft, Record
from deepstone.store.sealed import seal

# The store numbers attempts from 1. One given outside it is drawn from above, so that the two cannot meet on import.
FIRST_RESCUED_ATTEMPT: Final = 100_000_000
_RESCUED_ATTEMPTS: Final = 900_000_000


def rescued_attempt() -> int:
    return FIRST_RESCUED_ATTEMPT + secrets.randbelow(_RESCUED_ATTEMPTS)


def rescue(draft: Draft, folders: Iterable[Path] | None = None) -> Path:
    """Writes the run to the temporary folder or else to the home folder; StoreError when neither takes it."""
    record = Record.of(draft, run_id(draft.job, rescued_attempt()))
    return save_elsewhere(seal(codec.as_record(record.to_json())), record.id, "run", folders)


def save_refused(measured: Mapping[str, object] | Part, job: str, why: Exception, what: str) -> InternalError:
    """Saves, as it is, what our own code cannot make a good record of: our mistake must not cost a measurement."""
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
    except (TypeError, ValueError):  # keys that JSON does not have
        return repr(measured).encode("utf-8", "backslashreplace")


def _written(value: object) -> object:
    if isinstance(value, Part):
        return {name: part for name in value.__struct_fields__ if (part := getattr(value, name)) is not None}
    return value.to_json() if isinstance(value, Absent) else repr(value)


def save_elsewhere(data: bytes, name: str, what: str, folders: Iterable[Path] | None = None) -> Path:
    """The file of a run or a finding, in the first folder that takes it."""
    tried: list[str] = []
    for folder in _last_resorts() if folders is None else folders:
        try:
            return _write(data, folder, name)
        except OSError:
            tried.append(str(folder))
    raise StoreError(f"the {what} could not be saved in {' or '.join(tried) or 'any folder'} either: it is lost")


def _last_resorts() -> Iterator[Path]:
    with suppress(FileNotFoundError):  # no temporary folder can be written
        yield Path(tempfile.gettempdir())
    with suppress(RuntimeError):  # a user without a home
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
