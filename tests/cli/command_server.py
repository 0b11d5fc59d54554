"""Runs command lines in forks of one process that has imported Deepstone: no command pays for the imports again.

    pytest ── words, variables, folder, three descriptors ──▶ server ── fork ──▶ child: main() ──▶ exit
           ◀── pid ────────────────────────────────────────── │
           ◀── exit status ────────────────────────────────── waits

A child is a process like any other: its streams, variables, signals and exit code are its own. What Python reads before
it runs our code (its own variables, the locale, the dynamic linker's) cannot be given to a fork; `Cli` starts a new
process for that. test_cli_real.py holds forks against new processes.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # a fork has one
LONGEST_REQUEST = 2**17
WORKER_SIDE = ("backends", "worker")
LIBRARIES = (
    *("numpy", "psutil", "archspec.cpu", "rich.console", "rich.progress", "rich.table"),
    *("matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg"),
)


class Forked:
    """A command that runs in a fork of the server."""

    def __init__(self, channel: socket.socket, args: Sequence[str]) -> None:
        self._channel = channel
        self._args = args
        self.pid = int(channel.recv(100))

    def wait(self, timeout: float) -> int:
        self._channel.settimeout(timeout)
        try:
            return os.waitstatus_to_exitcode(int(self._channel.recv(100)))
        except TimeoutError:
            os.kill(self.pid, 9)
            self._channel.settimeout(None)
            self._channel.recv(100)
            raise subprocess.TimeoutExpired(self._args, timeout) from None


class Server:
    """One command at a time."""

    def __init__(self, variables: Mapping[str, str], forks: Path) -> None:
        """Workers are forks of those in the folder `forks` (forked_workers.py)."""
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), str(forks)],
                env={**variables, **ONE_THREAD},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._lock = threading.Lock()

    def start(self, args: Sequence[str], variables: Mapping[str, str], folder: Path, streams: Sequence[int]) -> Forked:
        request = json.dumps({"args": list(args), "variables": dict(variables), "folder": str(folder)}).encode()
        assert len(request) < LONGEST_REQUEST
        with self._lock:
            socket.send_fds(self._channel, [request], list(streams))
            return Forked(self._channel, args)

    def close(self) -> None:
        self._channel.close()
        self._process.wait()


def _import_everything() -> None:
    """All modules that others name, and the commands, but for frameworks and what runs in a worker; a script is named
    by none."""
    import deepstone

    root = Path(deepstone.__file__).parent
    sources = [path.read_text() for path in root.rglob("*.py") if path.parts[len(root.parts)] not in WORKER_SIDE]
    named = {
        name for source in sources for name in re.findall(r"^ *from (deepstone[.\w]+) import ", source, re.MULTILINE)
    }
    named |= {f"deepstone.cli.{path.stem}" for path in (root / "cli").glob("[a-z]*.py")}
    controller_side = [name for name in sorted(named) if name.split(".")[1] not in WORKER_SIDE]
    for name in (*controller_side, *LIBRARIES):
        importlib.import_module(name)
    # How busy others are, which `Cli` leaves out of what it returns, is not worth a third of a second of every command.
    importlib.import_module("deepstone.runner.quiet")._SHORTEST_CHECK_S = 0.02
    gc.collect()
    gc.freeze()


def _serve(channel: socket.socket) -> None:
    """Comes back in every child, which then has the streams, variables and words of its command."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, LONGEST_REQUEST, 3)
        if not message:
            os._exit(0)
        pid = os.fork()
        if not pid:
            channel.close()
            _become(json.loads(message), descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(str(pid).encode())
        channel.send(str(os.waitpid(pid, 0)[1]).encode())


def _become(request: dict[str, Any], streams: Sequence[int]) -> None:
    """As Python makes its streams for a new process."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["variables"])
    sys.argv = request["args"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  for as long as it runs
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def _leave(leaving: SystemExit) -> None:
    """As Python ends a process, but without taking so many modules apart: that takes longer than most commands."""
    if isinstance(leaving.code, str):  # Python prints it
        raise leaving
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # which Python tells in its own way
        raise leaving from None
    os._exit(leaving.code or 0)


def _main(channel: int, forks: Path) -> None:
    """Of the server, and then of every child."""
    sys.path.insert(1, str(Path(__file__).resolve().parents[1]))
    from forked_workers import forked_workers
    from unsynced_files import leave_files_unsynced

    del sys.path[1]
    leave_files_unsynced()
    _import_everything()
    with forked_workers(forks):
        _serve(socket.socket(fileno=channel))
        from deepstone.cli.main import main

        try:
            main()
        except SystemExit as leaving:
            _leave(leaving)


if __name__ == "__main__":
    _main(int(sys.argv[1]), Path(sys.argv[2]))
