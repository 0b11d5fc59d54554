"""Names and files that survive a power cut: wholly there or not at all."""

from __future__ import annotations

import os
import secrets
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
