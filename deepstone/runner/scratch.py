"""Scratch folders of jobs in the system's temporary folder, and the removal of those whose owners were killed.

The owner holds a lock on a file in its folder while it lives; the kernel releases the lock however the owner dies.
A process id would not do: the owner may live in another PID namespace, where its number means nothing to us.

    deepstone-job-ab12cd/
        owner.lock        is locked before it appears: a folder without it is never removed
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "deepstone-job-"
_LOCK: Final = "owner.lock"


@contextmanager
def scratch_folder(within: Path | None = None) -> Generator[Path]:
    """Create a folder that is removed when the context is left. Remove abandoned folders first. `within`: instead of
    the system's temporary folder, which other hosts do not see."""
    if within is not None:
        within.mkdir(parents=True, exist_ok=True)
    _sweep(Path(tempfile.gettempdir()) if within is None else within)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=within, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        lock_fd = _lock(folder)
        try:
            yield folder
        finally:
            if lock_fd is not None:
                os.close(lock_fd)


def _lock(folder: Path) -> int | None:
    """Lock a new folder. The file is locked before it gets its name. Return None if the file system has no locks."""
    unready = folder / f"{_LOCK}.new"
    descriptor = os.open(unready, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unready.rename(folder / _LOCK)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _sweep(within: Path) -> None:
    """Remove our user's folders whose owners have ended."""
    for folder in within.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it vanished meanwhile, or we may not read it
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        return
    # Another user may have put anything under this name: do not follow a link, do not wait for a pipe.
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)
