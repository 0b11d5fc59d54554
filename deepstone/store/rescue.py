"""The last resort for a run or finding that the store cannot take: a file elsewhere, which can be imported later."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from deepstone.errors import StoreError
from deepstone.records.identity import run_id
from deepstone.records.schema import Draft, Record
from deepstone.records.validate import check_record
from deepstone.store.runfile import encode

# The store numbers attempts from 1. One given outside it is drawn from above, so that the two cannot meet on import.
FIRST_RESCUED_ATTEMPT: Final = 100_000_000
_RESCUED_ATTEMPTS: Final = 900_000_000


def rescued_attempt() -> int:
    return FIRST_RESCUED_ATTEMPT + secrets.randbelow(_RESCUED_ATTEMPTS)


def rescue(draft: Draft, folders: Iterable[Path] | None = None) -> Path:
    """Writes the run to the temporary folder or else to the home folder; StoreError when neither takes it."""
    record = cast(Record, {**draft, "id": run_id(draft["job"], rescued_attempt())})
    return save_elsewhere(encode(check_record(record)), record["id"], "run", folders)


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
