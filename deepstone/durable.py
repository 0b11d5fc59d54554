"""Durable operations: names and files survive a power cut whole, and signals do not interrupt cleaning up."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


def make_folder(folder: Path) -> None:
    """Makes a folder and sees that its name survives a power cut."""
    try:
        folder.mkdir()
    except FileExistsError:
        return
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(data: bytes, target: Path) -> None:
    """Puts a complete file in place, over one that is there. Of several writers at once the last one wins."""
    temp = target.with_name(f".{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with temp.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temp.replace(target)
    finally:
        temp.unlink(missing_ok=True)
    sync_folder(target.parent)


@contextmanager
def signals_blocked() -> Generator[None]:
    """Time to clean up: signals that would end us, such as an impatient second Ctrl-C, come when we leave."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
