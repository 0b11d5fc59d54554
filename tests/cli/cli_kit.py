"""Runs `deepstone` as a user would: a process of its own, its own store, a pipe or a terminal.

The process is a fork of one that has imported everything (command_server.py), unless the command asks for more than a
fork can have, or `real` asks for the console script itself.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import sysconfig
import termios
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from command_server import Forked, Server
from forked_workers import IMPORTED, folder_of_forks, start_forks

import deepstone

SCRIPT = Path(sys.executable).with_name("deepstone")
LONGEST_S = 280  # less than a test may take
_OTHERS = re.compile(r"^before measuring: (?!other processes use the GPU).*\n", re.MULTILINE)
_READ_BEFORE_OUR_CODE = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_")  # by Python, the linker and the C library
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")


def first_line(error: Iterable[str]) -> str:
    """Of standard error, after what is said of others on the machine."""
    return next(line for line in error if not _OTHERS.match(line))


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
    longest_s: float = LONGEST_S
    more: Mapping[str, str] = field(default_factory=dict)
    real: bool = False

    def __call__(self, *words: object, cwd: Path | None = None, **variables: str) -> Result:
        code, out, err = self._run(words, cwd or self.home, variables, os.pipe(), os.pipe())
        # What else goes on in the machine of the tests is not theirs to decide.
        return Result(code=code, out=out, err=err if "--wait-until-quiet" in words else _OTHERS.sub("", err))

    def _run(
        self,
        words: Sequence[object],
        folder: Path,
        variables: Mapping[str, str],
        out: tuple[int, int],
        err: tuple[int, int],
    ) -> tuple[int, str, str]:
        """The exit code, and what came through either pair of descriptors, of which the second is the command's."""
        try:
            process = self._started(words, folder, variables, out[1], err[1])
        finally:
            os.close(out[1])
            os.close(err[1])
        with ThreadPoolExecutor(max_workers=2) as readers:
            said = [readers.submit(_read_all, ours) for ours, _ in (out, err)]
            try:
                code = process.wait(self.longest_s)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):  # a fork is gone by now
                    os.kill(process.pid, signal.SIGKILL)
                raise
            shown, told = (read.result() for read in said)
        return code, shown, told

    def _started(
        self, words: Sequence[object], folder: Path, variables: Mapping[str, str], stdout: int, stderr: int
    ) -> Forked | subprocess.Popen[bytes]:
        command, environment = self.command(*words), self.environment(**variables)
        can_be_forked = not any(name.startswith(_READ_BEFORE_OUR_CODE) for name in (*variables, *self.more))
        with Path(os.devnull).open("rb") as nothing:
            if can_be_forked and not self.real and command[0] == str(SCRIPT):
                return _server().start(command, environment, folder, (nothing.fileno(), stdout, stderr))
            return subprocess.Popen(command, env=environment, cwd=folder, stdin=nothing, stdout=stdout, stderr=stderr)

    def command(self, *words: object) -> list[str]:
        return [*self.start, *map(str, words)]

    def environment(self, **variables: str) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DEEPSTONE_", "_DEEPSTONE", "COMP_")) and name not in ("COLUMNS", "LINES")
        }
        own = {"DEEPSTONE_STORE": str(self.store), "DEEPSTONE_CACHE": str(self.cache), "HOME": str(self.home)}
        own["DEEPSTONE_FAKE"] = script()
        return {**kept, **own, "TERM": "xterm", "LC_ALL": "C.UTF-8", **self.more, **variables}

    def runs(self) -> list[Path]:
        """The files of all runs in the store."""
        return sorted(self.store.glob("runs/*/*.json"))

    def on_terminal(self, *words: object, columns: int = 80, error_too: bool = False, **variables: str) -> Result:
        """With standard output, or standard error alone, on a terminal so wide. `out` is what a person sees of it."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        out, err = (os.pipe(), (ours, theirs)) if error_too else ((ours, theirs), os.pipe())
        code, shown, told = self._run(words, self.home, variables, out, err)
        return Result(code=code, out=shown if error_too else _seen(shown), err=_seen(told) if error_too else told)


@cache
def _server() -> Server:
    """One for all tests of a process; it ends with it."""
    for framework in IMPORTED:
        start_forks(framework)
    server = Server({**os.environ, "LC_ALL": "C.UTF-8"}, folder_of_forks())
    atexit.register(server.close)
    return server


def _seen(shown: str) -> str:
    return _ESCAPES.sub("", shown).replace("\r\n", "\n")


def _read_all(descriptor: int) -> str:
    pieces: list[bytes] = []
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # EIO: the last writer has closed the terminal
            piece = b""
        if not piece:
            os.close(descriptor)
            return b"".join(pieces).decode()
        pieces.append(piece)


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def code_and_imports(cli: Cli, *words: str) -> tuple[str, list[str]]:
    """The exit code of a command in a process of its own, and the modules that it imported."""
    program = (
        "import sys\n"
        "from deepstone.cli.main import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as leaving:\n"
        "    print(leaving.code, *sorted(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words], env=cli.environment(), capture_output=True, text=True, timeout=200
    )
    code, *imported = done.stderr.splitlines()[-1].split()
    return code, imported


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
    """For DEEPSTONE_FAKE; the noise is the same every time, so that no verdict depends on luck."""
    return json.dumps({"seed": 1, **keys})
