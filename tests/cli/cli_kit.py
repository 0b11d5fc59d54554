"""Runs the real console script as a user would: a process of its own, its own store, a pipe or a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import sysconfig
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deepstone

SCRIPT = Path(sys.executable).with_name("deepstone")
LONGEST_S = 120
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")


@dataclass(frozen=True, kw_only=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out, parse_constant=_no_constant)

    def assert_ok(self) -> Result:
        assert self.code == 0, f"exit {self.code}: {self.err}"
        return self

    def assert_error(self, code: int, *words: str) -> None:
        """Exactly one line on standard error that begins with our name and holds the words; nothing else."""
        assert self.code == code, f"exit {self.code}: {self.err}{self.out}"
        assert self.out == ""
        assert self.err.startswith("deepstone: ")
        assert self.err.count("\n") == 1
        assert self.err.endswith("\n")
        for word in words:
            assert word in self.err


@dataclass(frozen=True, kw_only=True)
class Cli:
    """One user: a store, a cache, a home."""

    store: Path
    cache: Path
    home: Path
    start: Sequence[str] = (str(SCRIPT),)
    more: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *words: object, cwd: Path | None = None, **variables: str) -> Result:
        done = subprocess.run(
            self.command(*words),
            env=self.environment(**variables),
            cwd=cwd or self.home,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=LONGEST_S,
            check=False,
        )
        return Result(code=done.returncode, out=done.stdout, err=done.stderr)

    def command(self, *words: object) -> list[str]:
        return [*self.start, *map(str, words)]

    def environment(self, **variables: str) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DEEPSTONE_", "_DEEPSTONE", "COMP_")) and name not in ("COLUMNS", "LINES")
        }
        own = {"DEEPSTONE_STORE": str(self.store), "DEEPSTONE_CACHE": str(self.cache), "HOME": str(self.home)}
        return {**kept, **own, "TERM": "xterm", "LC_ALL": "C.UTF-8", **self.more, **variables}

    def runs(self) -> list[Path]:
        """The files of all runs in the store."""
        return sorted(self.store.glob("runs/*/*.json"))

    def on_terminal(self, *words: object, columns: int = 80, error_too: bool = False, **variables: str) -> Result:
        """With standard output, or standard error alone, on a terminal so wide. `out` is what a person sees of it."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        process = subprocess.Popen(
            self.command(*words),
            env=self.environment(**variables),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if error_too else theirs,
            stderr=theirs if error_too else subprocess.PIPE,
        )
        os.close(theirs)
        shown = _read_all(ours)
        piped, other = process.communicate(timeout=LONGEST_S)
        os.close(ours)
        seen = _ESCAPES.sub("", shown.decode()).replace("\r\n", "\n")
        if error_too:
            return Result(code=process.returncode, out=piped.decode(), err=seen)
        return Result(code=process.returncode, out=seen, err=other.decode())


def _read_all(descriptor: int) -> bytes:
    pieces: list[bytes] = []
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # EIO: the last writer has closed the terminal
            piece = b""
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def without_torch(folder: Path) -> tuple[list[str], dict[str, str]]:
    """How to start deepstone in a Python that has all its packages but torch."""
    return without(folder, "torch", "functorch")


def without(folder: Path, *packages: str) -> tuple[list[str], dict[str, str]]:
    """How to start deepstone in a Python that lacks packages whose names begin so: links to every other one."""
    folder.mkdir()
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not entry.name.startswith((*packages, "__editable__")) and entry.suffix != ".pth":
            (folder / entry.name).symlink_to(entry)
    package = Path(deepstone.__file__).parents[1]
    path = f"{folder}{os.pathsep}{package}"
    return [sys.executable, "-S", "-m", "deepstone"], {"PYTHONPATH": path}


def script(**keys: object) -> str:
    """For DEEPSTONE_FAKE."""
    return json.dumps(keys)
