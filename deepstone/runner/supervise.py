"""One worker process as the controller sees it: JSON lines there and back, deadlines, and an end that leaves nothing.

The worker is started by a keeper (keeper.py, whose head draws the pipes), so that its whole tree ends even when the
controller is killed. All waiting is poll(): while a worker measures, the controller uses no CPU. A WorkerProcess is to
be used by one thread.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from deepstone.errors import DeepstoneError, MissingError

KEEPER_PATH = Path(__file__).with_name("keeper.py")
KEEPER_LOST = "keeper lost"

LINE_LIMIT_BYTES = 256 * 2**20
READ_BYTES = 2**20
LONGEST_POLL_MS = 2**30

# A loaded machine on a network file system may need long to start even a small Python.
KEEPER_START_S = 60.0
# A worker whose reply pipe is closed is about to exit; unloading a GPU takes seconds. After that it is stopped.
EXIT_PATIENCE_S = 5.0
# What the keeper may wait for killed processes to vanish, and what we wait beyond all that before giving up the keeper.
KILL_PATIENCE_S = 10.0
KEEPER_PATIENCE_S = 5.0


class ProtocolError(DeepstoneError):
    """The worker sent something that is not a line holding one JSON object."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a worker ended. Either `exit_code` or `signal` is set, neither where that is not known.

    `ended_by` is "itself", "stop", "controller gone", "signal to the keeper" or "keeper lost". `cpu_s` is that of all
    processes of the tree that were waited for; `max_rss_bytes` that of the worker, or of a child it waited for if more.
    `stragglers` had to be ended after the worker itself; `unkillable` were there when the keeper lost its patience.
    """

    exit_code: int | None
    signal: str | None
    oom_killed: bool
    cpu_s: float
    max_rss_bytes: int
    ended_by: str
    stragglers: int
    unkillable: int = 0

    def __str__(self) -> str:
        if self.oom_killed:
            return "the worker was killed by the system because memory ran out"
        if self.signal is not None:
            return f"the worker was ended by {self.signal}"
        if self.exit_code is not None:
            return f"the worker exited with code {self.exit_code}"
        return "the worker ended, and its keeper could not say how"


# The keeper died or was abandoned before it could report; the worker dies with it.
UNKNOWN_ENDING = Ending(
    exit_code=None,
    signal=None,
    oom_killed=False,
    cpu_s=0.0,
    max_rss_bytes=0,
    ended_by=KEEPER_LOST,
    stragglers=0,
)


class WorkerEnded(Exception):
    """The worker is gone; `ending` says how it went."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(str(ending))
        self.ending = ending


class WorkerTimeout(Exception):
    """The deadline passed first. The worker is still there."""


class LineBuffer:
    """Bytes in, whole lines out."""

    def __init__(self, limit_bytes: int = LINE_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = bytearray()
        self._searched = 0  # no newline before this: a long line is not searched again with each piece

    @property
    def full(self) -> bool:
        """Whether so much is waiting to be taken that no more should be fed."""
        return len(self._bytes) > self._limit_bytes

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self._bytes += data

    def take(self) -> bytes | None:
        """The next whole line without its newline, or None if there is none yet."""
        end = self._bytes.find(b"\n", self._searched)
        length = len(self._bytes) if end < 0 else end
        if length > self._limit_bytes:
            raise ProtocolError(
                f"the worker sent a line of more than {self._limit_bytes} bytes; it was not read further"
            )
        if end < 0:
            self._searched = length
            return None
        line = bytes(self._bytes[:end])
        del self._bytes[: end + 1]
        self._searched = 0
        return line


class WorkerProcess:
    """A running worker. Use it as a context manager: leaving it ends the worker and every process it started."""

    def __init__(
        self,
        *,
        keeper: subprocess.Popen[bytes],
        descriptors: ExitStack,
        control_fd: int,
        status_fd: int,
        request_fd: int,
        reply_fd: int,
        output_path: Path,
    ) -> None:
        """Use `start`."""
        self.pid = 0
        self._keeper = keeper
        self._descriptors = descriptors
        self._control_fd = control_fd
        self._status_fd = status_fd
        self._request_fd = request_fd
        self._reply_fd = reply_fd
        self._output_path = output_path
        self._status = LineBuffer()
        self._replies = LineBuffer()
        self._ending: Ending | None = None

    @staticmethod
    def start(argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, output_path: Path) -> WorkerProcess:
        """Start a worker; its standard output and error are appended to a file.

        The numbers of the descriptors that it reads requests from and writes replies to are appended to `argv`. Raises
        MissingError if there is no such executable or folder.
        """
        with ExitStack() as ours, ExitStack() as theirs:
            control_read_fd, control_fd = _open_pipe(reader=theirs, writer=ours)
            status_fd, status_write_fd = _open_pipe(reader=ours, writer=theirs)
            request_read_fd, request_fd = _open_pipe(reader=theirs, writer=ours)
            reply_fd, reply_write_fd = _open_pipe(reader=ours, writer=theirs)
            environment_fd = _own(theirs, _write_environment(env))
            output_fd = _own(theirs, _open_output(output_path))
            os.set_blocking(request_fd, False)  # so that a large request cannot block against a large reply
            keeper_fds = (control_read_fd, status_write_fd, request_read_fd, reply_write_fd, environment_fd)
            worker_argv = (*argv, str(request_read_fd), str(reply_write_fd))
            keeper = _start_keeper(keeper_fds, worker_argv, cwd=cwd, output_fd=output_fd)
            worker = WorkerProcess(
                keeper=keeper,
                descriptors=ours.pop_all(),
                control_fd=control_fd,
                status_fd=status_fd,
                request_fd=request_fd,
                reply_fd=reply_fd,
                output_path=output_path,
            )
        with ExitStack() as undo:
            undo.push(worker)
            worker.pid = worker._await_start(argv[0])
            undo.pop_all()
        return worker

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def send(self, message: Mapping[str, object], *, deadline_s: float | None = None) -> None:
        """Send one request. Raises WorkerEnded if the worker is gone, WorkerTimeout if it does not read in time.

        After a timeout the worker may have half a request: it can only be stopped.
        """
        rest = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        while rest:
            self._require_running()
            try:
                rest = rest[os.write(self._request_fd, rest) :]
            except BrokenPipeError:
                self._await_exit()
            except BlockingIOError:
                # The worker may itself be stuck in a reply that nobody reads.
                self._wait_and_read(deadline_s, for_request=True)
                if self._replies.full:
                    raise ProtocolError("the worker sends replies without end and reads no request") from None

    def receive(self, *, deadline_s: float | None) -> dict[str, object]:
        """The next reply; sleeps until it is there or time.monotonic() passes the deadline.

        Raises WorkerTimeout, WorkerEnded once there is nothing left to read, or ProtocolError.
        """
        while (line := self._replies.take()) is None:
            self._require_running()
            self._wait_and_read(deadline_s)
        return _parse_reply(line)

    def wait(self, *, deadline_s: float | None) -> Ending:
        """Wait until the worker ends by itself, as after a request to close. Raises WorkerTimeout."""
        if self._ending is None:
            self._finish(self._await_ending(deadline_s))
        return self.stop()

    def stop(self, *, grace_s: float = 2.0) -> Ending:
        """End the whole tree if it still lives: TERM, and KILL after the grace. Says how it ended, always the same."""
        if self._ending is None:
            ending = UNKNOWN_ENDING
            try:
                self._ask_to_stop(grace_s)
                ending = self._await_ending(time.monotonic() + grace_s + KILL_PATIENCE_S + KEEPER_PATIENCE_S)
            except WorkerTimeout:
                self._keeper.kill()  # the worker dies with it
            finally:
                # Interrupted above, we give up the control pipe, and the keeper ends the tree on its own.
                self._finish(ending)
        assert self._ending is not None
        return self._ending

    def output_tail(self, limit: int = 4000) -> str:
        """The last characters of what the worker wrote on its standard output and error, safe to show on a terminal."""
        try:
            with self._output_path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - 4 * limit))  # no character of UTF-8 is longer
                data = file.read(4 * limit)
        except FileNotFoundError:
            return ""
        return _make_harmless(data.decode("utf-8", "replace"))[-limit:]

    def _require_running(self) -> None:
        if self._ending is not None:
            raise WorkerEnded(self._ending)

    def _wait_and_read(self, deadline_s: float | None, *, for_request: bool = False) -> None:
        """Sleep until there is a reply (which is read), an ending (which is noted) or, if asked, room for a request."""
        poll = select.poll()
        poll.register(self._reply_fd, select.POLLIN)
        poll.register(self._status_fd, select.POLLIN)
        if for_request:
            poll.register(self._request_fd, select.POLLOUT)
        ready = _wait(poll, deadline_s)
        if self._reply_fd in ready:
            if not self._read_replies():
                self._await_exit()
        elif self._status_fd in ready:
            # The keeper has reported, or was killed, but one that escaped it holds the reply pipe open.
            self._await_exit()

    def _read_replies(self) -> bool:
        """Take what is in the reply pipe; False when it is closed. What was read before stays readable."""
        data = os.read(self._reply_fd, READ_BYTES)
        self._replies.feed(data)
        return bool(data)

    def _await_start(self, executable: str) -> int:
        line = self._read_status(time.monotonic() + KEEPER_START_S)
        if line is None:
            raise DeepstoneError(f"the keeper of {executable} did not start: {self.output_tail()}")
        report = json.loads(line)
        if "cannot_start" in report:
            raise MissingError(
                f"cannot start {executable}: {os.strerror(report['cannot_start'])}; "
                "check that the environment it belongs to is still installed"
            )
        return report["worker_pid"]

    def _await_exit(self) -> None:
        """Note the ending of a worker that closed its pipe. If it does not exit after that, it is stopped."""
        try:
            self.wait(deadline_s=time.monotonic() + EXIT_PATIENCE_S)
        except WorkerTimeout:
            self.stop()

    def _await_ending(self, deadline_s: float | None) -> Ending:
        line = self._read_status(deadline_s)
        return UNKNOWN_ENDING if line is None else Ending(**json.loads(line))

    def _read_status(self, deadline_s: float | None) -> bytes | None:
        """The keeper's next line, or None if it died without one. Reads replies on: stuck in one, no worker can end."""
        poll = select.poll()
        poll.register(self._status_fd, select.POLLIN)
        poll.register(self._reply_fd, select.POLLIN)
        while (line := self._status.take()) is None:
            ready = _wait(poll, deadline_s)
            if self._reply_fd in ready and (self._replies.full or not self._read_replies()):
                poll.unregister(self._reply_fd)
            if self._status_fd in ready:
                data = os.read(self._status_fd, READ_BYTES)
                if not data:
                    return None
                self._status.feed(data)
        return line

    def _ask_to_stop(self, grace_s: float) -> None:
        try:
            os.write(self._control_fd, f"stop {grace_s:f} {KILL_PATIENCE_S:f}\n".encode())
        except BrokenPipeError:
            return  # the keeper is gone; the status pipe holds what it had to say

    def _finish(self, ending: Ending) -> None:
        """Note the ending, keep the last replies, close all descriptors, collect the keeper."""
        self._ending = ending
        try:
            with suppress(BlockingIOError):  # one that could not be killed still holds the pipe
                os.set_blocking(self._reply_fd, False)
                while not self._replies.full and self._read_replies():
                    pass
        finally:
            self._descriptors.close()
            self._keeper.wait()


def _open_pipe(*, reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """A pipe whose ends belong to the stacks. Neither end is inherited by any child that is not given it by name."""
    read_fd, write_fd = os.pipe()
    return _own(reader, read_fd), _own(writer, write_fd)


def _own(owner: ExitStack, descriptor: int) -> int:
    """Have the stack close a descriptor, moved above 2: a controller that has no stdin would get pipes down there."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    owner.callback(os.close, moved)
    return moved


def _write_environment(env: Mapping[str, str]) -> int:
    """The environment as a file without a name: in arguments all users could read it, in a pipe it might not fit."""
    descriptor = os.memfd_create("environment")
    with open(descriptor, "wb", closefd=False) as file:
        file.writelines(os.fsencode(f"{name}={value}") + b"\0" for name, value in env.items())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _open_output(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise DeepstoneError(f"cannot write the worker's output to {path}: {error.strerror}") from error


def _start_keeper(
    descriptors: Sequence[int], worker_argv: Sequence[str], *, cwd: Path, output_fd: int
) -> subprocess.Popen[bytes]:
    """The keeper in a session of its own, so that a Ctrl-C reaches the controller alone, which decides."""
    command = [sys.executable, "-I", "-S", str(KEEPER_PATH), *map(str, descriptors), *worker_argv]
    try:
        return subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output_fd,
            stderr=output_fd,
            pass_fds=descriptors,
            start_new_session=True,
        )
    except OSError as error:
        raise MissingError(f"cannot start {sys.executable} in {cwd}: {error.strerror}") from error


def _wait(poll: select.poll, deadline_s: float | None) -> list[int]:
    """Sleep until a descriptor is ready; which are. Raises WorkerTimeout when the deadline has passed."""
    while True:
        timeout_ms = None
        if deadline_s is not None:
            # Rounded up, so that the last fraction of a millisecond is slept and not spun away.
            timeout_ms = min(max(0, math.ceil((deadline_s - time.monotonic()) * 1000)), LONGEST_POLL_MS)
        ready = [descriptor for descriptor, _ in poll.poll(timeout_ms)]
        if ready:
            return ready
        if deadline_s is not None and time.monotonic() >= deadline_s:
            raise WorkerTimeout("the worker did not answer in time")


def _parse_reply(line: bytes) -> dict[str, object]:
    try:
        reply: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the worker sent a line that is not JSON ({error}): {_quote(line)}") from error
    if not isinstance(reply, dict):
        raise ProtocolError(f"the worker sent JSON that is not an object: {_quote(line)}")
    return cast("dict[str, object]", reply)


def _quote(line: bytes) -> str:
    shown = _make_harmless(line[:200].decode("utf-8", "replace"))
    return shown if len(line) <= 200 else f"{shown}… ({len(line)} bytes)"


# All control characters but newline and tab, and those that reorder or hide the text around them.
_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def _make_harmless(text: str) -> str:
    """Progress bars become lines; other control characters are spelt out (\\x1b), so that none reaches the terminal."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _HARMFUL.sub(lambda match: match[0].encode("unicode_escape").decode(), lines)
