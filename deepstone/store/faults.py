"""What the operating system refuses, as one line that says what to do."""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deepstone.errors import StoreError

_OTHER_STORE: Final = "name another store with --store DIR or DEEPSTONE_STORE"
_REMEDIES: Final = {
    errno.ENOSPC: f"make room, or {_OTHER_STORE}",
    errno.EDQUOT: f"make room in your quota, or {_OTHER_STORE}",
    errno.EROFS: _OTHER_STORE,
    errno.EACCES: f"change its permissions, or {_OTHER_STORE}",
    errno.EPERM: f"change its permissions, or {_OTHER_STORE}",
    errno.EIO: f"the disk itself failed: copy the store elsewhere, and {_OTHER_STORE}",
    errno.ENOTDIR: f"it is a file and not a folder: {_OTHER_STORE}",
    errno.EEXIST: f"it is a file and not a folder: {_OTHER_STORE}",
    errno.ENAMETOOLONG: _OTHER_STORE,
}


def remedy(error: OSError) -> str:
    return _REMEDIES.get(error.errno or 0, f"see to it, or {_OTHER_STORE}")


def reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


@contextmanager
def as_store_error(doing: str, root: Path) -> Generator[None]:
    """Turns an OSError into a StoreError that names the store, the reason and the remedy."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot {doing} the store {root}: {reason(error)}; {remedy(error)}") from error
