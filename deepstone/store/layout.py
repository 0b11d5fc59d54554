"""Where things lie in a store's folder.

format              the format's version
runs/ab/ab….json    one file per run: the truth
findings/….json     one file per finding: what was found out besides runs
studies/….json      what became of each study; written anew after every task
claims/             who is at work on what; left behind by the killed, then taken over
tmp/                files being written; left behind by the killed, then removed
index.sqlite        made from runs/, and made again whenever it does not fit
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deepstone.records.identity import JOB_PART, RUN_PATTERN

FORMAT: Final = "deepstone store 1\n"
_SUFFIX: Final = ".json"
_FOLDER_DIGITS: Final = 2  # of a run's name: 256 folders, none of them large


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
    def findings(self) -> Path:
        return self.root / "findings"

    @property
    def studies(self) -> Path:
        return self.root / "studies"

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
        return self.runs / run[:_FOLDER_DIGITS] / f"{run}{_SUFFIX}"

    def finding_file(self, finding: str) -> Path:
        assert RUN_PATTERN.fullmatch(finding), finding
        return self.findings / f"{finding}.json"

    def is_own(self, name: str) -> bool:
        """Whether an entry of the root is one that a store makes."""
        return name in {"format", "runs", "findings", "studies", "claims", "tmp"} or name.startswith("index.")


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
            names = _json_names(folder)
        except NotADirectoryError:
            continue
        except OSError as error:
            damaged.append(Damage(path=folder, reason=f"cannot be listed: {error.strerror}"))
            continue
        begin = folder.name
        for name in names:
            run = name[: -len(_SUFFIX)]
            if run[:_FOLDER_DIGITS] == begin and RUN_PATTERN.fullmatch(run):
                runs.add(run)
            else:
                damaged.append(Damage(path=folder / name, reason="lies where no run of that name belongs"))
    return Scan(runs=frozenset(runs), damaged=tuple(damaged))


def attempts_of(layout: Layout, job: str) -> list[int]:
    """The attempts at a job that have a file, in order."""
    start = f"{job[:JOB_PART]}-"
    try:
        names = _json_names(layout.runs / job[:_FOLDER_DIGITS])
    except FileNotFoundError:
        return []
    runs = (name.removesuffix(".json") for name in names if name.startswith(start))
    return sorted(int(run.removeprefix(start)) for run in runs if RUN_PATTERN.fullmatch(run))


def _json_names(folder: Path) -> list[str]:
    # Not Path.iterdir: ten thousand paths take longer to make than the folders take to list.
    return [name for name in os.listdir(folder) if name.endswith(_SUFFIX)]  # noqa: PTH208
