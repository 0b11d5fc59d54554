"""Where things lie in the folder of environments.

tensorflow@2.21.0/                    one folder per environment
    environment.json                  what it is; written last, so a folder without it is half-made and never used
    venv/                             made in place, since a venv that is moved does not work
    system/                           or the root of an old Debian, where its recipe is of that kind
    lib/                              libraries under the names that an old framework asks for, where its recipe says so
    tmp/                              what pip unpacks and builds, while it does
locks/tensorflow@2.21.0.lock          held by the process that makes or removes it
logs/tensorflow@2.21.0.log            what pip said the last time; survives a failure
removed/                              on the way out, under names that nobody uses
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deepstone import faults
from deepstone.durable import make_folder
from deepstone.environments.names import NAME
from deepstone.errors import StoreError

VARIABLE: Final = "DEEPSTONE_ENVIRONMENTS"
ELSEWHERE: Final = f"set {VARIABLE} to another folder"


def environments_root() -> Path:
    """DEEPSTONE_ENVIRONMENTS, else a folder in the user's data folder."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser().absolute()  # it is written into what is made there
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "deepstone" / "environments"


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
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
    """Turns an OSError into a StoreError that names the folder, the reason and the remedy."""
    try:
        yield
    except OSError as error:
        remedy = faults.remedy(error, ELSEWHERE)
        raise StoreError(f"cannot {doing} in {root}: {faults.reason(error)}; {remedy}") from error
