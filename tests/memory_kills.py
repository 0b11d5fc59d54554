"""Keeps tests that run out of memory apart from tests that kill a worker by hand.

The kernel counts kills for lack of memory for the whole machine, and a keeper whose worker was killed meanwhile takes
that for the reason.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def no_kill_meanwhile() -> Iterator[None]:
    """For tests that kill a worker: any number at a time."""
    yield from _holding(fcntl.LOCK_SH)


@contextmanager
def a_kill_meanwhile() -> Iterator[None]:
    """For tests in which memory runs out."""
    yield from _holding(fcntl.LOCK_EX)


def _holding(kind: int) -> Iterator[None]:
    with (Path(tempfile.gettempdir()) / f"deepstone-memory-kills-{os.getuid()}").open("w") as file:
        fcntl.flock(file, kind)
        yield
