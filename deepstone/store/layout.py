"""The layout of a store's folder.

format              the format's version
runs/ab/ab….json    one file per run: the truth
findings/….json     one file per finding
studies/….json      the state of each study; rewritten after every task
tunes/….json        the log of each search for the best setup; rewritten after every look
claims/             which process works on which job or search; claims of killed processes are taken over
tmp/                files being written; those of killed processes are removed
index.sqlite        built from runs/, and rebuilt whenever it does not match
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from deepstone import errors
from deepstone.durable import make_folder
from deepstone.errors import StoreError
from deepstone.results.identity import JOB_PART, RUN_PATTERN
from deepstone.store.claims import remove_abandoned_claims
from deepstone.store.files import publish, remove_abandoned

FORMAT: Final = "deepstone store 1\n"
_OTHER_STORE: Final = "name another store with --store DIR or DEEPSTONE_STORE"
_SUFFIX: Final = ".json"
_FOLDER_DIGITS: Final = 2  # of a run's name: 256 small folders


class Layout(Struct, frozen=True, kw_only=True):
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
    def tunes(self) -> Path:
        return self.root / "tunes"

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
        # The pattern protects the file system from names that users give.
        assert RUN_PATTERN.fullmatch(run), run
        return self.runs / run[:_FOLDER_DIGITS] / f"{run}{_SUFFIX}"

    def finding_file(self, finding: str) -> Path:
        assert RUN_PATTERN.fullmatch(finding), finding
        return self.findings / f"{finding}.json"

    def is_own(self, name: str) -> bool:
        """Whether a store creates an entry of this name in its root."""
        return name in {"format", "runs", "findings", "studies", "tunes", "claims", "tmp"} or name.startswith("index.")


class Damage(Struct, frozen=True, kw_only=True):
    """A file of the store that cannot be used, and why."""

    path: Path
    reason: str


class Scan(Struct, frozen=True, kw_only=True):
    """The content of the folder, by names alone."""

    runs: frozenset[str]
    damaged: tuple[Damage, ...]


def scan(layout: Layout) -> Scan:
    """Return the names of all runs. Raises OSError if the folder of runs itself cannot be listed."""
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
    """Return the attempts at a job that have a file, in order."""
    start = f"{job[:JOB_PART]}-"
    try:
        names = _json_names(layout.runs / job[:_FOLDER_DIGITS])
    except FileNotFoundError:
        return []
    runs = (name.removesuffix(".json") for name in names if name.startswith(start))
    return sorted(int(run.removeprefix(start)) for run in runs if RUN_PATTERN.fullmatch(run))


def _json_names(folder: Path) -> list[str]:
    # Not Path.iterdir: creating ten thousand paths takes longer than listing the folders.
    return [name for name in os.listdir(folder) if name.endswith(_SUFFIX)]  # noqa: PTH208


def remedy(error: OSError) -> str:
    return errors.remedy(error, _OTHER_STORE)


@contextmanager
def as_store_error(doing: str, root: Path) -> Generator[None]:
    """Turn an OSError into a StoreError that names the store, the reason and the remedy."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot {doing} the store {root}: {errors.reason(error)}; {remedy(error)}") from error


def default_folder() -> Path:
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "deepstone"


def open_layout(root: Path, *, create: bool) -> Layout:
    """Return the layout of an existing store, without files of dead processes; create the store if allowed."""
    layout = Layout(root=root)
    with as_store_error("open", root):
        if not _has_format(layout):
            if not create:
                raise StoreError(f"there is no store in {root}; name one with --store DIR or DEEPSTONE_STORE")
            _make(layout)
        if not layout.runs.is_dir():
            make_folder(layout.runs)
    clean(layout)
    return layout


def clean(layout: Layout) -> None:
    """Remove the files of killed processes."""
    for folder in (layout.tmp, layout.claims, layout.runs):
        remove_abandoned(folder)
    remove_abandoned_claims(layout.claims)


def _has_format(layout: Layout) -> bool:
    try:
        found = layout.format.read_bytes()[:100]
    except (FileNotFoundError, NotADirectoryError):
        return False
    if found != FORMAT.encode("ascii"):
        raise StoreError(
            f"{layout.format} does not say {FORMAT.strip()!r}: the store was made by another version of Deepstone, "
            "or the folder is something else; name another store with --store DIR or DEEPSTONE_STORE"
        )
    return True


def _make(layout: Layout) -> None:
    layout.root.mkdir(parents=True, exist_ok=True)
    foreign = next((entry.name for entry in layout.root.iterdir() if not layout.is_own(entry.name)), None)
    if foreign is not None:
        raise StoreError(
            f"{layout.root} is no store and not empty (it holds {foreign!r}); name a new folder with --store DIR"
        )
    make_folder(layout.tmp)
    publish(FORMAT.encode("ascii"), layout.format, tmp=layout.tmp)
