"""Where things lie in a store's folder.

format              the format's version
runs/ab/ab….json    one file per run: the truth
claims/             who is at work on what; left behind by the killed, then taken over
tmp/                files being written; left behind by the killed, then removed
index.sqlite        made from runs/, and made again whenever it does not fit
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deepstone.records.identity import JOB_PART, RUN_PATTERN

FORMAT: Final = "deepstone store 1\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    root: Path

    @property
    def format(self) -> Path:
        return self.root / "format"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def claims(self) -> Path:
        return self.root / "claims"

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"

    @property
    def index(self) -> Path:
        return self.root / "index.sqlite"

    @property
    def index_lock(self) -> Path:
        return self.root / "index.lock"

    def run_file(self, run: str) -> Path:
        # The pattern is the wall between a name that someone gave and the file system.
        assert RUN_PATTERN.fullmatch(run), run
        return self.runs / run[:2] / f"{run}.json"

    def is_own(self, name: str) -> bool:
        """Whether an entry of the root is one that a store makes."""
        return name in {"format", "runs", "claims", "tmp"} or name.startswith("index.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Damage:
    """A file of the store that cannot be used, and why."""

    path: Path
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Scan:
    """What the folder holds, by names alone."""

    runs: frozenset[str]
    damaged: tuple[Damage, ...]


def scan(layout: Layout) -> Scan:
    """The names of all runs; OSError when the folder of runs itself cannot be listed."""
    runs: set[str] = set()
    damaged: list[Damage] = []
    for folder in layout.runs.iterdir():
        try:
            names = tuple(_json_names(folder))
        except NotADirectoryError:
            continue
        except OSError as error:
            damaged.append(Damage(path=folder, reason=f"cannot be listed: {error.strerror}"))
            continue
        for name in names:
            run = name.removesuffix(".json")
            if RUN_PATTERN.fullmatch(run) and run[:2] == folder.name:
                runs.add(run)
            else:
                damaged.append(Damage(path=folder / name, reason="lies where no run of that name belongs"))
    return Scan(runs=frozenset(runs), damaged=tuple(damaged))


def attempts_of(layout: Layout, job: str) -> list[int]:
    """The attempts at a job that have a file, in order."""
    start = f"{job[:JOB_PART]}-"
    try:
        names = tuple(_json_names(layout.runs / job[:2]))
    except FileNotFoundError:
        return []
    runs = (name.removesuffix(".json") for name in names if name.startswith(start))
    return sorted(int(run.removeprefix(start)) for run in runs if RUN_PATTERN.fullmatch(run))


def _json_names(folder: Path) -> Iterator[str]:
    return (entry.name for entry in folder.iterdir() if entry.name.endswith(".json"))
