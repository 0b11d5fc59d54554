"""Claims: an exclusive file says which process works on a name. A claim ends with its process.

free ──create exclusively──▶ held ──release──▶ free
                              │ owner gone, or another boot
                              └──take over, one at a time under a lock──▶ held by the new owner
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

from deepstone.durable import make_folder
from deepstone.store.files import Owner, link_exclusively, locked, temporary

_BEING_WRITTEN_S: Final = 10.0  # a younger empty claim is still being written
_TAKEOVER_WAIT_S: Final = 5.0


class Claim(Struct, frozen=True, kw_only=True):
    """A claimed name; released at the end of a `with`."""

    path: Path
    owner: Owner

    def release(self) -> None:
        # If the file cannot be removed, the claim still ends with this process.
        with suppress(OSError):
            if _owner(self.path) == self.owner:
                self.path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


def take(folder: Path, name: str) -> Claim | None:
    """Claim a name; return None if a running process holds it."""
    make_folder(folder)
    path = folder / f"{name}.claim"
    claim = _create(path)
    if claim or not _is_stale(path):
        return claim
    return _take_over(path)


def owner_of(folder: Path, name: str) -> Owner | None:
    """Return the process that has a name; None if it has just released it."""
    with suppress(FileNotFoundError):
        return _owner(folder / f"{name}.claim")
    return None


def remove_abandoned_claims(folder: Path) -> None:
    """Remove the claims of processes that have ended."""
    # In a missing or read-only folder there is nothing to remove.
    with suppress(OSError):
        stale = [path for path in folder.glob("*.claim") if _is_stale(path)]
        if stale:
            with locked(_lock_of(folder), wait_s=_TAKEOVER_WAIT_S) as acquired:
                for path in stale if acquired else ():
                    _remove_if_stale(path)


def _create(path: Path) -> Claim | None:
    """Create the file together with its owner's name, so that a kill never leaves a claim without an owner."""
    owner = Owner.myself()
    data = owner.text.encode("ascii")
    with temporary(data, folder=path.parent, durable=False) as temp:
        taken = link_exclusively(temp, path)
        if taken is None:
            taken = _create_empty_then_write(path, data)
    return Claim(path=path, owner=owner) if taken else None


def _create_empty_then_write(path: Path, data: bytes) -> bool:
    """Do the same without hard links; for a moment the claim is empty."""
    try:
        file = path.open("xb")
    except FileExistsError:
        return False
    try:
        with file:
            file.write(data)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return True


def _take_over(path: Path) -> Claim | None:
    """Take over a dead claim under a lock. Without it, a second process could remove the new claim of the first."""
    with locked(_lock_of(path.parent), wait_s=_TAKEOVER_WAIT_S) as acquired:
        return _create(path) if acquired and _remove_if_stale(path) else None


def _remove_if_stale(path: Path) -> bool:
    if not _is_stale(path):
        return False
    path.unlink(missing_ok=True)
    return True


def _lock_of(folder: Path) -> Path:
    return folder / "takeover.lock"


def _is_stale(path: Path) -> bool:
    try:
        owner = _owner(path)
        return owner.is_gone() if owner else time.time() - path.stat().st_mtime > _BEING_WRITTEN_S
    except FileNotFoundError:  # released meanwhile
        return False


def _owner(path: Path) -> Owner | None:
    return Owner.parse(path.read_text(encoding="ascii", errors="replace"))
