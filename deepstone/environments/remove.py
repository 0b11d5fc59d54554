"""Removes environments. If it is interrupted, the rest is not mistaken for an environment.

For an adopted environment only environment.json is removed. If a user mounted something inside an environment, it is
unmounted first; if that fails, nothing is removed, because the mounted files belong to somebody else.
"""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from deepstone.durable import signals_blocked
from deepstone.environments.find import own_environments
from deepstone.environments.manifest import survey
from deepstone.environments.places import Place, Progress, changing
from deepstone.errors import StoreError, UsageError, nearest, shown

_MOUNT_POINT: Final = 4  # its field in a line of mountinfo
_UMOUNT_NOFOLLOW: Final = 8


def resolve(wanted: str, root: Path) -> str:
    """Return the name of an environment from its name, or from a framework with only one. Raises UsageError
    otherwise."""
    found = survey(root)
    names = [manifest.environment.name for manifest in found.made] + [entry.name for entry in found.unusable]
    meant = [name for name in names if wanted in (name, name.partition("@")[0])]
    if wanted in meant or len(meant) == 1:
        return wanted if wanted in meant else meant[0]
    if meant:
        raise UsageError(f"{wanted}: there are several; name one of {', '.join(meant)}")
    own = [each for each in own_environments() if wanted in (each.name, each.framework)]
    if own:
        raise UsageError(f"{wanted}: belongs to {own[0].program}, which runs Deepstone; remove it there with pip")
    tail = nearest(wanted, names) if names else "there is none"
    raise UsageError(f"{shown(wanted)}: no such environment; {tail}")


def remove(name: str, root: Path, progress: Progress) -> None:
    place = Place(root=root, name=name)
    with changing(place, "remove", progress), signals_blocked():
        discard(place)
        place.log.unlink(missing_ok=True)
        sweep(place)


def discard(place: Place) -> None:
    """Remove the folder, under the environment's lock. Raises OSError if it still exists afterwards."""
    _unmount_within(place.folder)
    aside = place.removed / f"{place.name}.{secrets.token_hex(6)}"
    try:
        place.folder.rename(aside)
    except FileNotFoundError:
        return
    except OSError:
        place.manifest.unlink(missing_ok=True)  # first: without it nothing uses the rest
        shutil.rmtree(place.folder)
    else:
        shutil.rmtree(aside, ignore_errors=True)  # `sweep` tries the rest again


def sweep(place: Place) -> None:
    """Remove folders that killed processes left in removed/. Other processes may do the same."""
    with suppress(OSError):
        for entry in place.removed.iterdir():
            if not mounts_within(entry):
                shutil.rmtree(entry, ignore_errors=True)


def mounts_within(folder: Path) -> list[Path]:
    """Return the mounts inside a folder in the order of unmounting: the last mounted first. A link has none."""
    within = folder.parent.resolve() / folder.name
    found = [mounted for mounted in _mount_points() if mounted == within or within in mounted.parents]
    return found[::-1]


def _unmount_within(folder: Path) -> None:
    """Raises StoreError if something cannot be unmounted; then the folder is unchanged."""
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
