"""One worker process, seen from the controller: JSON lines in both directions, deadlines, and its end."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, cast

from deepstone.errors import DeepstoneError, MissingError, out_of_descriptors
from deepstone.results.parts import Json
from deepstone.supervise import Ending, LineTooLong, ProcessTimeout, State, Supervised, make_harmless

# After each reply the file of the worker's output is cut to its end if it is longer than this.
_MOST_OUTPUT_BYTES: Final = 16 * 2**20
_KEPT_OUTPUT_BYTES: Final = 64 * 2**10
# A worker that closed its reply pipe is about to exit; unloading a GPU takes seconds. After this time it is stopped.
EXIT_PATIENCE_S = 5.0


class ProtocolError(DeepstoneError):
    """The worker sent something that is not a line holding one JSON object."""


class WorkerEnded(Exception):
    """The worker is gone; `ending` says how it went."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(str(ending))
        self.ending = ending


class WorkerProcess:
    """A running worker. Use it as a context manager: leaving it ends the worker and every process it started."""

    def __init__(self, process: Supervised, output_path: Path) -> None:
        """Use `start`."""
        self._process = process
        self._output_path = output_path

    @staticmethod
    def start(argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, output_path: Path) -> WorkerProcess:
        """Start a worker; its standard output and error are appended to a file.

        The numbers of the descriptors that it reads requests from and writes replies to are appended to `argv`. Raises
        MissingError if there is no such executable or folder.
        """
        output_fd = _open_output(output_path)
        try:
            return WorkerProcess(Supervised.start(argv, env=env, cwd=cwd, output_fd=output_fd), output_path)
        except OSError as error:
            if out_of_descriptors(error):
                raise
            if error.filename != argv[0]:
                raise MissingError(f"cannot start {sys.executable} in {cwd}: {error.strerror}") from error
            raise MissingError(
                f"cannot start {argv[0]}: {error.strerror}; check that the environment it belongs to is still installed"
            ) from error
        finally:
            os.close(output_fd)

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def send(self, message: Mapping[str, object], *, deadline_s: float | None = None) -> None:
        """Send one request. Raises WorkerEnded if the worker is gone, ProcessTimeout if it does not read in time.

        After a timeout the worker may have half a request: it can only be stopped.
        """
        rest = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        while rest:
            self._require_running()
            try:
                rest = rest[self._process.write(rest) :]
            except ConnectionError:
                self._await_exit()
            except BlockingIOError:
                # The worker may itself be stuck in a reply that nobody reads.
                self._read(deadline_s, or_writable=True)
                if self._process.stream.full:
                    raise ProtocolError("the worker sends replies without end and reads no request") from None

    def receive(self, *, deadline_s: float | None) -> dict[str, Json]:
        """Return the next reply; sleep until it arrives or time.monotonic() passes the deadline.

        Raises ProcessTimeout, ProtocolError, or WorkerEnded if nothing is left to read.
        """
        while (line := self._take_line()) is None:
            self._require_running()
            self._read(deadline_s)
        return _parse_reply(line)

    def attend(self, released_fd: int) -> None:
        """Sleep until a descriptor can be read. Raises WorkerEnded if the worker, which was asked nothing, ends
        before."""
        if not self._process.sleep_until(released_fd):
            self._await_exit()
            self._require_running()

    def wait(self, *, deadline_s: float | None) -> Ending:
        """Wait until the worker exits, as after a request to close. Raises ProcessTimeout."""
        return self._process.wait(deadline_s=deadline_s)

    def stop(self, *, grace_s: float = 2.0) -> Ending:
        """End the whole tree if it still runs: TERM, and KILL after a grace period. All calls return the same
        ending."""
        return self._process.stop(grace_s=grace_s)

    def state(self) -> State | None:
        """What the process does now, on whatever host it is; None where that is not known."""
        return self._process.state()

    def ask_to_stop(self) -> None:
        """Have the keeper end the tree, and do not wait for that. Any thread may ask."""
        self._process.ask_to_stop()

    def output_tail(self, limit: int = 4000) -> str:
        """Return the end of the worker's standard output and error, safe to show on a terminal."""
        try:
            with self._output_path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - 4 * limit))  # no character of UTF-8 is longer
                data = file.read(4 * limit)
        except FileNotFoundError:
            return ""
        return make_harmless(data.decode("utf-8", "replace"))[-limit:]

    def trim_output(self) -> None:
        """Cut long output to its end. Call it only between requests: the worker appends to the same file."""
        try:
            with self._output_path.open("r+b") as file:
                size = os.fstat(file.fileno()).st_size
                if size <= _MOST_OUTPUT_BYTES:
                    return
                file.seek(size - _KEPT_OUTPUT_BYTES)
                end = file.read(_KEPT_OUTPUT_BYTES)
                file.truncate(0)
                file.seek(0)
                file.write(b"(what was printed before is left out)\n" + end)
        except OSError:
            return  # the folder is gone or full; the run itself needs no output

    def _take_line(self) -> bytes | None:
        try:
            return self._process.stream.take()
        except LineTooLong as error:
            raise ProtocolError(f"the worker sent {error}; it was not read further") from error

    def _require_running(self) -> None:
        if self._process.ending is not None:
            raise WorkerEnded(self._process.ending)

    def _read(self, deadline_s: float | None, *, or_writable: bool = False) -> None:
        if not self._process.read(deadline_s, or_writable=or_writable):
            self._await_exit()

    def _await_exit(self) -> None:
        """Wait for a worker that closed its pipe, and stop it if it does not exit."""
        try:
            self.wait(deadline_s=time.monotonic() + EXIT_PATIENCE_S)
        except ProcessTimeout:
            self.stop()


def _open_output(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if out_of_descriptors(error):
            raise
        raise DeepstoneError(f"cannot write the worker's output to {path}: {error.strerror}") from error


def _parse_reply(line: bytes) -> dict[str, Json]:
    try:
        reply: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the worker sent a line that is not JSON ({error}): {_quote(line)}") from error
    if not isinstance(reply, dict):
        raise ProtocolError(f"the worker sent JSON that is not an object: {_quote(line)}")
    return cast("dict[str, Json]", reply)


def _quote(line: bytes) -> str:
    shown = make_harmless(line[:200].decode("utf-8", "replace"))
    return shown if len(line) <= 200 else f"{shown}… ({len(line)} bytes)"
