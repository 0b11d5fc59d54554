"""Claims: who is at work on a name. An exclusive file that says which process made it; the dead lose theirs.

free ──create exclusively──▶ held ──release──▶ free
                              │ owner gone, or another boot
                              └──take over, one at a time under a lock──▶ held by the new owner
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from deepstone.durable import make_folder
from deepstone.store.files import Owner, link_exclusively, locked, temporary

_BEING_WRITTEN_S: Final = 10.0  # an empty claim is being written, unless it has been so for long
_TAKEOVER_WAIT_S: Final = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A name held; released at the end of a `with`."""

    path: Path
    owner: Owner

    def release(self) -> None:
        # If the file cannot be removed, the claim ends with this process all the same.
        with suppress(OSError):
            if _owner(self.path) == self.owner:
                self.path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


def take(folder: Path, name: str) -> Claim | None:
    """Claims a name; None when a living process holds it."""
    make_folder(folder)
    path = folder / f"{name}.claim"
    claim = _create(path)
    if claim or not _is_stale(path):
        return claim
    return _take_over(path)


def remove_abandoned_claims(folder: Path) -> None:
    """Removes the claims of processes that are gone."""
    # A folder that is missing or read-only has nothing that we must, or can, remove.
    with suppress(OSError):
        stale = [path for path in folder.glob("*.claim") if _is_stale(path)]
        if stale:
            with locked(_lock_of(folder), wait_s=_TAKEOVER_WAIT_S) as held:
                for path in stale if held else ():
                    _remove_if_stale(path)


def _create(path: Path) -> Claim | None:
    """Makes the file with its owner in it at once: a kill must not leave a claim that tells nobody's name."""
    owner = Owner.myself()
    data = owner.stamp.encode("ascii")
    with temporary(data, folder=path.parent, durable=False) as temp:
        taken = link_exclusively(temp, path)
        if taken is None:
            taken = _create_empty_then_write(path, data)
    return Claim(path=path, owner=owner) if taken else None


def _create_empty_then_write(path: Path, data: bytes) -> bool:
    """The same where there are no hard links, with a moment in which the claim is empty."""
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
    """Under a lock: of two that find the same dead claim, the second would else remove the new claim of the first."""
    with locked(_lock_of(path.parent), wait_s=_TAKEOVER_WAIT_S) as held:
        return _create(path) if held and _remove_if_stale(path) else None


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
