"""Finding the processes that a test started, whoever their parents are by now, and waiting for what they do."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from deepstone.runner.worker_process import WorkerProcess

HERE = Path(__file__).parent
PATIENCE_S = 60.0  # on however busy a machine


def worker_argv(mark: str, *words: str) -> list[str]:
    """A scripted worker. The mark stands in the arguments of its keeper and, by fork, of all its descendants."""
    return [sys.executable, "-I", "-S", str(HERE / "scripted_worker.py"), mark, *words]


def start_worker(mark: str, folder: Path) -> WorkerProcess:
    return WorkerProcess.start(worker_argv(mark), env={"MARK": mark}, cwd=folder, output_path=folder / "output.txt")


def ask(worker: WorkerProcess, do: str, *, timeout_s: float = PATIENCE_S, **details: object) -> dict[str, object]:
    """Send one request and wait for its reply."""
    worker.send({"do": do, **details})
    return worker.receive(deadline_s=time.monotonic() + timeout_s)


def ask_pid(worker: WorkerProcess, do: str) -> int:
    pid = ask(worker, do)["pid"]
    assert isinstance(pid, int)
    return pid


def marked(mark: str) -> list[int]:
    """The living processes that have the mark in their arguments, zombies not counted: they have no arguments."""
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in read_bytes(path)]


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def state(pid: int) -> str:
    """One letter: R runs, S sleeps, T is stopped, Z is dead."""
    return stat_fields(pid)[0]


def parent(pid: int) -> int:
    return int(stat_fields(pid)[1])


def stat_fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def children() -> list[int]:
    """The children of this process, zombies too."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if exists(pid) and parent(pid) == os.getpid()]


def exists(pid: int) -> bool:
    """Whether a process is there, alive or as a zombie."""
    return Path(f"/proc/{pid}").exists()


def seconds_until(condition: Callable[[], bool], *, timeout_s: float = PATIENCE_S) -> float:
    """How long it took until the condition held; fails if it does not in time."""
    start_s = time.monotonic()
    while not condition():
        assert time.monotonic() - start_s < timeout_s, "waited in vain"
        time.sleep(0.005)
    return time.monotonic() - start_s


def kill_marked(mark: str) -> None:
    """What a failed test left must not disturb the next one."""
    for pid in marked(mark):
        if pid != os.getpid():
            os.kill(pid, signal.SIGKILL)
