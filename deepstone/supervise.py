"""The supervisor: every process that Deepstone starts and sees to its end has a keeper (keeper.py draws the pipes).

    worker    Supervised.start(…, output_fd)   its stream is a reply pipe; runner/worker_process.py speaks JSON over it
    rank      Supervised.adopt(…)              a worker whose keeper a launcher started, perhaps on another host
    program   run_program(…)                   its stream is its output: pip, an interpreter, a user's model file

Whatever the process starts ends with it, daemons too, and all of it ends with us, however we die. Else pip would go on
writing into what the next one builds. All waiting is poll(): while a worker measures, the controller uses no CPU. A
Supervised is to be used by one thread; others may only ask it to stop, and ask for its state.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Protocol, Self

from msgspec import Struct

from deepstone.errors import DeepstoneError, MissingError

_KEEPER: Final = Path(__file__).with_name("keeper.py")
KEEPER_LOST: Final = "keeper lost"

_LINE_LIMIT_BYTES: Final = 256 * 2**20
_READ_BYTES: Final = 2**20
_LONGEST_POLL_MS: Final = 2**30
# All control characters except newline and tab, and characters that reorder or hide the text around them.
_HARMFUL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")

# A loaded machine on a network file system may need long to start even a small Python.
KEEPER_START_S = 60.0
# How long the keeper may wait for killed processes to vanish, and how much longer we wait for the keeper itself.
KILL_PATIENCE_S = 10.0
KEEPER_PATIENCE_S = 5.0

# What reading says of a socket whose other end, or the way there, is gone.
_LOST_CONNECTION: Final = (errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPIPE)

_TICK_S: Final = 0.5
_TEXT_LINE_BYTES: Final = 65536  # a longer one comes in pieces


class ProcessTimeout(Exception):
    """The deadline passed first."""


class OutputFlood(Exception):
    """The program printed more than it may, and was ended."""


class LineTooLong(Exception):
    """A line is longer than the limit; the message names that. It was not read further."""


class Ending(Struct, frozen=True, kw_only=True):
    """How a process ended. Either `exit_code` or `signal` is set, neither where that is not known.

    `ended_by` is "itself", "stop", "controller gone", "signal to the keeper" or "keeper lost". `cpu_s` is that of all
    processes of the tree that were waited for; `max_rss_bytes` that of the process, or of a child it waited for if
    more. `stragglers` had to be ended after the process itself; `unkillable` were there when the keeper lost its
    patience.
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

    @property
    def returncode(self) -> int:
        """As subprocess has it: the exit code, negative for a signal. A process dies with a lost keeper, by SIGKILL."""
        return -_signal_number(self.signal or signal.SIGKILL.name) if self.exit_code is None else self.exit_code


class State(Struct, frozen=True, kw_only=True):
    """What a process does, by the letter of /proc, and its CPU time."""

    letter: str
    cpu_s: float

    @property
    def is_stopped(self) -> bool:
        return self.letter in ("T", "t")

    def __str__(self) -> str:
        return f"{_STATES.get(self.letter, f'it is in state {self.letter}')}, after {self.cpu_s:.1f} s of CPU time"


_STATES: Final = {"R": "it computes", "S": "it waits", "D": "it hangs in the kernel, for a disk or a network"}
_LIMIT_REMEDY: Final = "root may set it, within what `nvidia-smi -q -d POWER` shows; or leave power_limit out"
_STATE_S: Final = 3.0
_STATE_LOOK_S: Final = 0.1
_START_REPORTS: Final = frozenset({"worker_pid", "cannot_start", "cannot_limit"})
# The keeper died or was abandoned before it could report; the process dies with it.
_UNKNOWN_ENDING: Final = Ending(
    exit_code=None, signal=None, oom_killed=False, cpu_s=0.0, max_rss_bytes=0, ended_by=KEEPER_LOST, stragglers=0
)


class LineBuffer:
    """Bytes in, whole lines out."""

    def __init__(self, limit_bytes: int = _LINE_LIMIT_BYTES) -> None:
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
            raise LineTooLong(f"a line of more than {self._limit_bytes} bytes")
        if end < 0:
            self._searched = length
            return None
        line = bytes(self._bytes[:end])
        del self._bytes[: end + 1]
        self._searched = 0
        return line

    def put_back(self, line: bytes) -> None:
        """The line that was taken last."""
        self._bytes[:0] = line + b"\n"
        self._searched = 0

    def take_all(self) -> bytes:
        """Everything, whole lines or not."""
        data = bytes(self._bytes)
        self._bytes.clear()
        self._searched = 0
        return data


class _Keeper(Protocol):
    """The keeper's process, as far as we can reach it."""

    def kill(self) -> None: ...

    def wait(self) -> object: ...


class _DistantKeeper:
    """One that somebody else started. It ends its tree, and itself, once our ends of the sockets are closed."""

    def __init__(self, control_fd: int) -> None:
        self._control_fd = control_fd

    def kill(self) -> None:
        with suppress(OSError), socket.socket(fileno=os.dup(self._control_fd)) as control:
            control.shutdown(socket.SHUT_RDWR)

    def wait(self) -> object:
        return None


class Supervised:
    """A process with its keeper. Use it as a context manager: leaving it ends the process and all that it started."""

    def __init__(
        self,
        *,
        keeper: _Keeper,
        descriptors: ExitStack,
        control_fd: int,
        status_fd: int,
        stream_fd: int,
        request_fd: int | None,
    ) -> None:
        """Use `start`."""
        self.pid = 0
        # What the process sent and nobody took yet. Of what is only printed, little waits here.
        self.stream = LineBuffer(_LINE_LIMIT_BYTES if request_fd is not None else _READ_BYTES)
        self.stream_bytes = 0  # all that it ever sent
        self.ending: Ending | None = None
        self._keeper = keeper
        self._descriptors = descriptors
        self._control_fd = control_fd
        self._status_fd = status_fd
        self._stream_fd = stream_fd
        self._request_fd = request_fd
        self._status = LineBuffer()
        self._closing = threading.Lock()  # so that nobody asks through a descriptor that is closed already
        self._reading = threading.Lock()  # held by the thread that reads what the keeper says
        self._state: State | None = None  # as the keeper told it last
        self._told_state = threading.Event()

    @staticmethod
    def start(
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        output_fd: int | None = None,
        deadline_s: float = math.inf,
    ) -> Supervised:
        """Without `output_fd` the stream is the output of the process. With it, output goes there, and the process gets
        two pipes: the descriptors that it reads requests from and writes the stream to are appended to `argv`.

        OSError if it cannot be started; its `filename` is `argv[0]` if that is the cause. ProcessTimeout.
        """
        with ExitStack() as ours, ExitStack() as theirs:
            control_read_fd, control_fd = _open_pipe(reader=theirs, writer=ours)
            status_fd, status_write_fd = _open_pipe(reader=ours, writer=theirs)
            stream_fd, stream_write_fd = _open_pipe(reader=ours, writer=theirs)
            keeper_fds = (control_read_fd, status_write_fd, _own(theirs, _write_environment(env)))
            request_fd, worker_fds = None, tuple[int, ...]()
            if output_fd is not None:
                request_read_fd, request_fd = _open_pipe(reader=theirs, writer=ours)
                os.set_blocking(request_fd, False)  # so that a large request cannot block against a large reply
                worker_fds = (request_read_fd, stream_write_fd)
            keeper = _start_keeper(
                keeper_fds,
                worker_fds,
                (*argv, *map(str, worker_fds)),
                cwd=cwd,
                output_fd=stream_write_fd if output_fd is None else output_fd,
            )
            process = Supervised(
                keeper=keeper,
                descriptors=ours.pop_all(),
                control_fd=control_fd,
                status_fd=status_fd,
                stream_fd=stream_fd,
                request_fd=request_fd,
            )
        return process._started(argv[0], deadline_s)

    @staticmethod
    def adopt(control: socket.socket, talk: socket.socket, executable: str, *, deadline_s: float) -> Supervised:
        """A worker whose keeper is at the other end of `control`, and which itself is at the other end of `talk`. Both
        sockets become ours. OSError if it cannot be started, ProcessTimeout."""
        with ExitStack() as ours:
            control_fd, talk_fd = _own(ours, control.detach()), _own(ours, talk.detach())
            os.set_blocking(talk_fd, False)
            process = Supervised(
                keeper=_DistantKeeper(control_fd),
                descriptors=ours.pop_all(),
                control_fd=control_fd,
                status_fd=control_fd,
                stream_fd=talk_fd,
                request_fd=talk_fd,
            )
        return process._started(executable, deadline_s)

    def _started(self, executable: str, deadline_s: float) -> Self:
        with ExitStack() as undo:
            undo.push(self)
            self.pid = self._await_start(executable, deadline_s)
            undo.pop_all()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def read(self, deadline_s: float | None, *, or_writable: bool = False) -> bool:
        """Sleep until something comes, and feed the stream with it; or, if asked, until there is room for a request.

        False once the process has closed the stream, or the keeper has reported while one that escaped it holds the
        stream open. ProcessTimeout.
        """
        poll = select.poll()
        poll.register(self._stream_fd, select.POLLIN)
        poll.register(self._status_fd, select.POLLIN)
        if or_writable and self._request_fd is not None:
            both = self._request_fd == self._stream_fd
            poll.register(self._request_fd, select.POLLOUT | (select.POLLIN if both else 0))
        with self._reading:
            while True:
                ready = _wait(poll, deadline_s)
                if self._stream_fd in ready:
                    return self._read_stream()
                if self._status_fd not in ready:
                    return True
                if not self._only_told_state():
                    return False

    def sleep_until(self, readable_fd: int) -> bool:
        """Sleep until another descriptor can be read; False if the process ends before. Nothing is read of what it
        sends."""
        poll = select.poll()
        poll.register(self._status_fd, select.POLLIN)
        poll.register(readable_fd, select.POLLIN)
        with self._reading:
            while True:
                ready = _wait(poll, None)
                if self._status_fd in ready and not self._only_told_state():
                    return False
                if readable_fd in ready:
                    return True

    def _only_told_state(self) -> bool:
        """Take what the keeper says. Whether it was no more than the answer to another thread's question."""
        data = _read(self._status_fd)
        self._status.feed(data or b"")
        line = self._status.take()
        while line is not None and self._take_state(line):
            line = self._status.take()
        if line is not None:
            self._status.put_back(line)
        return bool(data) and line is None

    def _take_state(self, line: bytes) -> bool:
        report = json.loads(line)
        if "worker_state" not in report:
            return False
        self._state = State(letter=report["worker_state"], cpu_s=report["worker_cpu_s"])
        self._told_state.set()
        return True

    def write(self, data: memoryview) -> int:
        """How much of it the request pipe took. BlockingIOError if it is full, BrokenPipeError if nobody reads it."""
        assert self._request_fd is not None
        return os.write(self._request_fd, data)

    def wait(self, *, deadline_s: float | None) -> Ending:
        """Wait until the process ends by itself, as after a request to close. ProcessTimeout."""
        if self.ending is None:
            self._finish(self._await_ending(deadline_s))
        return self.stop()

    def stop(self, *, grace_s: float = 2.0) -> Ending:
        """End the whole tree if it still lives: TERM, and KILL after the grace. Says how it ended, always the same."""
        if self.ending is None:
            ending = _UNKNOWN_ENDING
            try:
                self.ask_to_stop(grace_s)
                ending = self._await_ending(time.monotonic() + grace_s + KILL_PATIENCE_S + KEEPER_PATIENCE_S)
            except ProcessTimeout:
                self._keeper.kill()  # the process dies with it
            finally:
                # Interrupted above, we give up the control pipe, and the keeper ends the tree on its own.
                self._finish(ending)
        assert self.ending is not None
        return self.ending

    def _read_stream(self) -> bool:
        """Take what is in the stream; False when it is closed. What was read before stays readable."""
        data = _read(self._stream_fd)
        if data is None:  # there is room for a request, and nothing to read
            return True
        self.stream.feed(data)
        self.stream_bytes += len(data)
        return bool(data)

    def _await_start(self, executable: str, deadline_s: float) -> int:
        line = self._read_status(min(deadline_s, time.monotonic() + KEEPER_START_S))
        if line is None:
            said = self.stream.take_all().decode("utf-8", "replace")
            raise DeepstoneError(f"the keeper of {executable} did not start{said and ': '}{said}")
        report = json.loads(line)
        if "cannot_start" in report:
            raise OSError(report["cannot_start"], os.strerror(report["cannot_start"]), executable)
        if "cannot_limit" in report:
            raise MissingError(f"power_limit: {report['cannot_limit']}; {_LIMIT_REMEDY}")
        return report["worker_pid"]

    def _await_ending(self, deadline_s: float | None) -> Ending:
        while (line := self._read_status(deadline_s)) is not None:
            report = json.loads(line)
            if not _START_REPORTS & report.keys():  # a signal to us may have come before we read that
                return Ending(**report)
        return _UNKNOWN_ENDING

    def _read_status(self, deadline_s: float | None) -> bytes | None:
        """The keeper's next line, or None if it died without one. Reads the stream on: stuck in it, none can end."""
        poll = select.poll()
        poll.register(self._status_fd, select.POLLIN)
        poll.register(self._stream_fd, select.POLLIN)
        with self._reading:
            while (line := self._status.take()) is None or self._take_state(line):
                if line is not None:
                    continue
                ready = _wait(poll, deadline_s)
                if self._stream_fd in ready and (self.stream.full or not self._read_stream()):
                    poll.unregister(self._stream_fd)
                if self._status_fd in ready:
                    data = _read(self._status_fd)
                    if not data:
                        return None
                    self._status.feed(data)
            return line

    def ask_to_stop(self, grace_s: float = 2.0) -> None:
        """Have the keeper end the tree, and do not wait for that. Any thread may ask, while another one reads."""
        with self._closing, suppress(ConnectionError):  # the keeper is gone; the status holds what it had to say
            if self.ending is None:
                os.write(self._control_fd, f"stop {grace_s:f} {KILL_PATIENCE_S:f}\n".encode())

    def state(self) -> State | None:
        """What the process does now, as its keeper sees it; None if that does not answer. Any thread may ask, while
        another one reads."""
        self._told_state.clear()
        with self._closing, suppress(ConnectionError):
            if self.ending is not None:
                return None
            os.write(self._control_fd, b"state\n")
        end_s = time.monotonic() + _STATE_S
        while not self._told_state.is_set() and time.monotonic() < end_s:
            if not self._reading.acquire(blocking=False):
                self._told_state.wait(_STATE_LOOK_S)
                continue
            try:
                self._read_state(end_s)
            finally:
                self._reading.release()
            break
        return self._state if self._told_state.is_set() else None

    def _read_state(self, end_s: float) -> None:
        """Read until the keeper has answered. What else it says is left for whoever waits for it."""
        poll = select.poll()
        poll.register(self._status_fd, select.POLLIN)
        with suppress(ProcessTimeout):
            while not self._told_state.is_set():
                _wait(poll, end_s)
                if not self._only_told_state():
                    return

    def _finish(self, ending: Ending) -> None:
        """Note the ending, take the rest of the stream, close all descriptors, collect the keeper."""
        with self._closing:
            self.ending = ending
        try:
            os.set_blocking(self._stream_fd, False)
            # Until it is empty: one that could not be killed may still hold the pipe.
            while not self.stream.full and (data := _read(self._stream_fd)):
                self.stream.feed(data)
        finally:
            self._descriptors.close()
            self._keeper.wait()


def make_harmless(text: str) -> str:
    """Turn progress bars into lines and escape other control characters (\\x1b), so that none reaches the terminal."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _HARMFUL.sub(lambda match: match[0].encode("unicode_escape").decode(), lines)


def run_program(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    on_line: Callable[[str], None] = lambda _: None,
    on_tick: Callable[[], None] = lambda: None,
    timeout_s: float = math.inf,
    most_bytes: float = math.inf,
) -> int:
    """Its exit code, negative for a signal. Each line of its output goes to `on_line`; `on_tick` is called twice a
    second. OSError when it cannot be started, ProcessTimeout, OutputFlood. Whatever a callback raises ends it, too.
    """
    deadline_s = time.monotonic() + timeout_s
    lines = _TextLines(on_line)
    with Supervised.start(argv, env=env, cwd=cwd, deadline_s=deadline_s) as process:
        next_tick_s = 0.0
        while process.stream_bytes <= most_bytes:
            now_s = time.monotonic()
            if now_s >= deadline_s:
                raise ProcessTimeout
            if now_s >= next_tick_s:
                on_tick()
                next_tick_s = now_s + _TICK_S
            try:
                is_open = process.read(min(next_tick_s, deadline_s))
            except ProcessTimeout:
                continue
            lines.feed(process.stream.take_all())
            if not is_open:
                ending = process.wait(deadline_s=deadline_s)
                lines.feed(process.stream.take_all())
                lines.end()
                return ending.returncode
        raise OutputFlood


class _TextLines:
    """Calls back with each line that is not blank. A progress bar's returns end lines, too."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        for line in whole:
            self._tell(line)
        if len(self._rest) > _TEXT_LINE_BYTES:
            self.end()

    def end(self) -> None:
        line, self._rest = self._rest, b""
        self._tell(line)

    def _tell(self, line: bytes) -> None:
        if line.strip():
            self._on_line(line.decode("utf-8", "replace"))


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


def _start_keeper(
    keeper_fds: Sequence[int], worker_fds: Sequence[int], worker_argv: Sequence[str], *, cwd: Path, output_fd: int
) -> subprocess.Popen[bytes]:
    """The keeper in a session of its own, so that a Ctrl-C reaches the controller alone, which decides."""
    inherited = ",".join(map(str, worker_fds)) or "-"
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(_KEEPER), *map(str, keeper_fds), inherited, *worker_argv],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output_fd,
        stderr=output_fd,
        pass_fds=(*keeper_fds, *worker_fds),
        start_new_session=True,
    )


def _read(descriptor: int) -> bytes | None:
    """What has come; nothing at the end of the stream, or where a socket was reset; None if nothing has come yet."""
    try:
        return os.read(descriptor, _READ_BYTES)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno in _LOST_CONNECTION:
            return b""
        raise


def _wait(poll: select.poll, deadline_s: float | None) -> list[int]:
    """Sleep until a descriptor is ready; which are. ProcessTimeout when the deadline has passed."""
    if deadline_s == math.inf:
        deadline_s = None
    while True:
        timeout_ms = None
        if deadline_s is not None:
            # Rounded up, so that the last fraction of a millisecond is slept and not spun away.
            timeout_ms = min(max(0, math.ceil((deadline_s - time.monotonic()) * 1000)), _LONGEST_POLL_MS)
        ready = [descriptor for descriptor, _ in poll.poll(timeout_ms)]
        if ready:
            return ready
        if deadline_s is not None and time.monotonic() >= deadline_s:
            raise ProcessTimeout("it did not answer in time")


def _signal_number(name: str) -> int:
    """As the keeper names them: SIGSEGV, or SIG35 for one without a name."""
    return signal.Signals[name] if name in signal.Signals.__members__ else int(name.removeprefix("SIG"))
