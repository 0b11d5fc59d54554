"""What is mounted inside a folder. Whoever removes a folder must know: behind a mount lie files of somebody else."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from typing import Final

from deepstone.errors import StoreError

_MOUNT_POINT: Final = 4  # its place among the words of a line of mountinfo
_UMOUNT_NOFOLLOW: Final = 8


def mounts_within(folder: Path) -> list[Path]:
    """The last mounted first, the order in which they can be taken away. A folder that is only a link holds none."""
    within = folder.parent.resolve() / folder.name
    found = [mounted for mounted in _mount_points() if mounted == within or within in mounted.parents]
    return found[::-1]


def unmount_within(folder: Path) -> None:
    """StoreError for what cannot be unmounted, with the rest of the folder as it was."""
    libc = ctypes.CDLL(None, use_errno=True)
    for mounted in mounts_within(folder):
        if libc.umount2(os.fsencode(mounted), _UMOUNT_NOFOLLOW) != 0:
            why = os.strerror(ctypes.get_errno()).lower()
            raise StoreError(
                f"cannot remove {folder}: {mounted} is mounted there and cannot be unmounted ({why}); end what uses "
                f"it, then umount {mounted}"
            )


def _mount_points() -> list[Path]:
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    return [_unescaped(line.split(b" ")[_MOUNT_POINT]) for line in lines]


def _unescaped(word: bytes) -> Path:
    """The kernel writes a space as \\040."""
    return Path(os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), word)))
