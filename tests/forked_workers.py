"""Workers as forks of a process that has imported their framework: no worker pays for that again, two seconds of torch.

    pytest, or the process of a command                    forks of a framework
    supervise._start_keeper ── words, folder, ───────────▶ imports it once
                               descriptors                 │ fork ──▶ keeper.main() ── fork ──▶ the script: what exec
    connection ◀─────────────── held by the keeper ────────┘          of keeper.py              and a new Python do

Everything from the keeper on is the product's own code, and keeper and worker are processes like any other, but for the
command line and the variables that /proc shows of them. A process starts as ever if it is of another interpreter or
framework, if variables differ that are read before our code runs, or if a test looks for the mark that its processes
carry. So do all workers in the tests of backends, which are about the processes themselves.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn

# What each imports before its first step, but nothing of ours: a planted error waits for the import of that.
IMPORTED = {
    "torch": ("torch._dynamo", "torch.distributed", "torch.profiler"),
    "fake": ("ctypes", "dataclasses", "numpy.random", "subprocess", "typing"),
}
TEMPORARY = os.environ.get("TMPDIR", "/tmp")  # before a test changes it; tempfile would remember what it tells
ROOT = Path(__file__).resolve().parents[1]
KEEPER = ROOT / "deepstone" / "keeper.py"
SCRIPTS = (ROOT / "deepstone" / "worker" / "serve.py", ROOT / "deepstone" / "worker" / "describe.py")
MARK_VARIABLE = "DEEPSTONE_TEST_MARK"
# A fork takes over these: it sets torch's threads, and finds modules, as a new process would.
TAKEN_OVER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONPATH")
LONGEST_REQUEST = 2**17
MOST_DESCRIPTORS = 6


class ForkedKeeper:
    """As much of a process as the supervisor needs. The keeper's end of the connection closes when it ends."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = int(connection.recv(100))

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        self._connection.recv(1)
        self._connection.close()


@contextmanager
def forked_workers(folder: Path | None = None) -> Iterator[None]:
    """Workers that this process starts are forks, if they can be; `folder` is that of another process' forks."""
    from deepstone import supervise

    start_anew = supervise._start_keeper
    supervise._start_keeper = partial(_start_keeper, folder, start_anew)
    try:
        yield
    finally:
        supervise._start_keeper = start_anew


@cache
def folder_of_forks() -> Path:
    """Where the sockets of this process' forks are, and the variables that they were started with."""
    folder = tempfile.TemporaryDirectory(prefix="deepstone-forks-", dir=TEMPORARY)
    atexit.register(folder.cleanup)
    Path(folder.name, "variables.json").write_text(json.dumps(_relevant(os.environ)))
    return Path(folder.name)


@cache
def start_forks(framework: str) -> None:
    """One for all tests of this process; it ends with it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(folder_of_forks() / framework))
    listener.listen()
    process = subprocess.Popen(
        [sys.executable, __file__, str(listener.fileno()), *IMPORTED[framework]],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # a fork has one thread
        stdin=subprocess.PIPE,
        pass_fds=[listener.fileno()],
    )
    listener.close()

    def end() -> None:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()

    atexit.register(end)


def _start_keeper(
    folder: Path | None,
    start_anew: Callable[..., Any],
    keeper_fds: Sequence[int],
    worker_fds: Sequence[int],
    worker_argv: Sequence[str],
    *,
    cwd: Path,
    output_fd: int,
) -> Any:
    framework = _framework(worker_argv)
    variables = _read_environment(keeper_fds[2]) if framework else {}
    ours = folder or folder_of_forks()
    if not framework or MARK_VARIABLE in variables or _relevant(variables) != _variables_of(ours):
        return start_anew(keeper_fds, worker_fds, worker_argv, cwd=cwd, output_fd=output_fd)
    if folder is None:
        start_forks(framework)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(str(ours / framework))
    words = list(worker_argv[: len(worker_argv) - len(worker_fds)])
    request = json.dumps({"words": words, "folder": str(cwd)}).encode()
    socket.send_fds(connection, [request], [output_fd, *keeper_fds, *worker_fds])
    return ForkedKeeper(connection)


def _framework(argv: Sequence[str]) -> str:
    """Empty where it cannot be forked."""
    if argv[0] != sys.executable or Path(argv[1]) not in SCRIPTS:
        return ""
    name = argv[2].removeprefix("deepstone.backends.").partition(".")[0]
    return name if name in IMPORTED else ""


@cache
def _variables_of(folder: Path) -> dict[str, str]:
    return json.loads((folder / "variables.json").read_text())


def _relevant(variables: Mapping[str, str]) -> dict[str, str]:
    from deepstone.launchers.local import recorded_variables

    return {name: value for name, value in recorded_variables(variables).items() if name not in TAKEN_OVER}


def _read_environment(descriptor: int) -> dict[str, str]:
    """As the keeper reads it, and leaving it to the keeper to be read."""
    content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    pairs = (entry.partition(b"=") for entry in content.split(b"\0")[:-1])
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _serve(listener: socket.socket) -> None:
    """Until standard input closes: then pytest has ended."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(0, select.POLLIN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a keeper but its connection
    while 0 not in [descriptor for descriptor, _ in poll.poll()]:
        connection, _ = listener.accept()
        if not os.fork():
            listener.close()
            _become_keeper(connection)
        connection.close()


def _become_keeper(connection: socket.socket) -> NoReturn:
    """As supervise.py starts it."""
    try:
        message, descriptors, _, _ = socket.recv_fds(connection, LONGEST_REQUEST, MOST_DESCRIPTORS)
        request = json.loads(message)
        output, control, status, environment, *inherited = descriptors
        os.setsid()
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.chdir(request["folder"])
        connection.send(str(os.getpid()).encode())
        keeper = runpy.run_path(str(KEEPER))
        os.execvpe = _become_script
        numbers = [str(number) for number in inherited]
        words = [*request["words"], *numbers]
        keeper["main"]([str(control), str(status), str(environment), ",".join(numbers) or "-", *words])
    except BaseException:  # noqa: BLE001  a fork never goes on as its parent does
        traceback.print_exc()
    finally:
        os._exit(0)


def _become_script(program: str, argv: Sequence[str], environment: Mapping[bytes, bytes]) -> NoReturn:
    """As exec and a new Python would, but with the framework in memory."""
    code = 1
    try:
        for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
            with suppress(OSError):
                if not os.get_inheritable(descriptor):
                    os.close(descriptor)
        for number, handler in (
            (signal.SIGINT, signal.default_int_handler),
            (signal.SIGPIPE, signal.SIG_IGN),
            (signal.SIGXFSZ, signal.SIG_IGN),
        ):
            signal.signal(number, handler)
        os.environb.clear()
        os.environb.update(environment)
        _take_over()
        sys.argv = list(argv[1:])
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _take_over() -> None:
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(int(threads))
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.path[1:1] = folders
    if any(Path(folder, "sitecustomize.py").exists() for folder in folders):
        importlib.import_module("sitecustomize")


if __name__ == "__main__":
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
