"""The folder of environments: its layout, and the lock that lets one process at a time change an environment.

tensorflow@2.21.0/                    one folder per environment
    environment.json                  what it is; written last, so a folder without it is incomplete and never used
    venv/                             built in place, since a venv that is moved does not work
    system/                           or the root of an old Debian: a chroot environment
    lib/                              links to libraries under the names that an old framework needs
    tmp/                              temporary files of pip
locks/tensorflow@2.21.0.lock          held by the process that builds or removes it
logs/tensorflow@2.21.0.log            output of the last pip run; survives a failure
removed/                              environments that are being removed, under unique names
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from deepstone import errors
from deepstone.durable import make_folder
from deepstone.environments.environment import NAME
from deepstone.errors import StoreError

VARIABLE: Final = "DEEPSTONE_ENVIRONMENTS"
ELSEWHERE: Final = f"set {VARIABLE} to another folder"


def environments_root() -> Path:
    """Return DEEPSTONE_ENVIRONMENTS, else a folder in the user's data folder."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser().absolute()  # scripts in the environments contain this path
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "deepstone" / "environments"


class Progress(Protocol):
    """Progress callbacks for building an environment."""

    def stage(self, stage: str, detail: str, share: float) -> None:
        """Report the stage (one of a few), the package or file that it works on, and the share of all work done."""
        ...

    def message(self, text: str) -> None:
        """Show a message to the user."""
        ...


class Place(Struct, frozen=True, kw_only=True):
    """The files of one environment."""

    root: Path
    name: str

    def __post_init__(self) -> None:
        assert NAME.fullmatch(self.name), self.name

    @property
    def folder(self) -> Path:
        return self.root / self.name

    @property
    def manifest(self) -> Path:
        return self.folder / "environment.json"

    @property
    def venv(self) -> Path:
        return self.folder / "venv"

    @property
    def system(self) -> Path:
        return self.folder / "system"

    @property
    def lib(self) -> Path:
        return self.folder / "lib"

    @property
    def tmp(self) -> Path:
        return self.folder / "tmp"

    @property
    def lock(self) -> Path:
        return self.root / "locks" / f"{self.name}.lock"

    @property
    def log(self) -> Path:
        return self.root / "logs" / f"{self.name}.log"

    @property
    def removed(self) -> Path:
        return self.root / "removed"

    def make_folders_around(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        for folder in (self.lock.parent, self.log.parent, self.removed):
            make_folder(folder)


@contextmanager
def as_store_error(doing: str, root: Path) -> Generator[None]:
    """Turn an OSError into a StoreError that names the folder, the reason and the remedy."""
    try:
        yield
    except OSError as error:
        remedy = errors.remedy(error, ELSEWHERE)
        raise StoreError(f"cannot {doing} in {root}: {errors.reason(error)}; {remedy}") from error


@contextmanager
def changing(place: Place, doing: str, progress: Progress) -> Generator[None]:
    """Let one process at a time change an environment; others wait. Raises StoreError if the folder is not writable."""
    with as_store_error(f"{doing} {place.name}", place.root):
        place.make_folders_around()
        with _locked(place.lock, lambda: progress.message(f"another deepstone makes {place.name}; waiting")):
            yield


@contextmanager
def _locked(path: Path, waiting: Callable[[], None]) -> Generator[None]:
    """Hold the lock; if another process has it, call `waiting` once and wait. Raises OSError if locking is impossible.

    The kernel releases a lock however its holder dies. The file stays: if it were removed, two processes could lock two
    files of the same name.
    """
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_locked(path: Path) -> bool:
    """Whether some process holds the lock now."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # never locked yet, or not readable
        return False
    return False
