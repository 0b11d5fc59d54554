"""One process at a time makes or removes an environment. The kernel gives a lock back however its holder dies."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held(path: Path, waiting: Callable[[], None]) -> Generator[None]:
    """Holds the lock; calls `waiting` once when another process has it, and waits. OSError where nothing can be locked.

    The file stays: one that was removed could be locked by two, each under the same name.
    """
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_held(path: Path) -> bool:
    """Whether some process holds it now."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # never locked yet, or not for us to see
        return False
    return False
