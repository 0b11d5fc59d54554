"""What the operating system refuses a store, as one line that says what to do."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deepstone import faults
from deepstone.errors import StoreError

_OTHER_STORE: Final = "name another store with --store DIR or DEEPSTONE_STORE"


def remedy(error: OSError) -> str:
    return faults.remedy(error, _OTHER_STORE)


@contextmanager
def as_store_error(doing: str, root: Path) -> Generator[None]:
    """Turns an OSError into a StoreError that names the store, the reason and the remedy."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot {doing} the store {root}: {faults.reason(error)}; {remedy(error)}") from error
