"""A program that we start and see to its end. Whatever it started ends with it, and all of it with us.

    we ──── lifeline ────▶ minder ──forks──▶ the program ──▶ its children
       ◀──── status ──────    └── one process group, in a session of its own ──┘

A Ctrl-C of the terminal reaches us alone, and we end the group. Should we be killed, the lifeline closes and the minder
ends the group: else pip, or the making of a venv, would go on writing into what the next one makes anew.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

_MINDER: Final = Path(__file__).with_name("minder.py")
_TICK_S: Final = 0.5
_GRACE_S: Final = 2.0
_READ_BYTES: Final = 65536


class ChildTimeout(Exception):
    """It ran longer than it may, and was ended."""


def run(
    command: Sequence[str],
    *,
    variables: Mapping[str, str],
    folder: Path,
    line: Callable[[str], None] = lambda _: None,
    tick: Callable[[], None] = lambda: None,
    timeout_s: float | None = None,
) -> int:
    """Its exit code, negative for a signal. Each line of its output goes to `line`; `tick` is called twice a second.

    OSError when it cannot be started. Whatever `line` and `tick` raise ends it too.
    """
    end_s = None if timeout_s is None else time.monotonic() + timeout_s
    with _Minded(command, variables, folder) as minded:
        _follow(minded.minder, line, tick, end_s)
        minded.wait(end_s)
    return minded.code


class _Minded:
    """The program and its minder. Leaving the context ends both."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], folder: Path) -> None:
        lifeline_fd, self._lifeline_fd = os.pipe()
        self._status_fd, status_fd = os.pipe()
        theirs = (lifeline_fd, status_fd, _written(variables))
        try:
            self.minder = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_MINDER), *map(str, theirs), *command],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=theirs,
                start_new_session=True,
            )
        except BaseException:
            self._close()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """TERM to the whole group if it still lives; then the minder kills whatever is left of it."""
        try:
            if self.minder.poll() is None:
                os.killpg(self.minder.pid, signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    self.minder.wait(_GRACE_S)
        finally:
            self._close()
            self.minder.wait()
            if self.minder.stdout is not None:
                self.minder.stdout.close()

    def wait(self, end_s: float | None) -> None:
        try:
            self.minder.wait(None if end_s is None else max(0.0, end_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise ChildTimeout from None
        self._status = os.read(self._status_fd, 64).decode().split()

    @property
    def code(self) -> int:
        """After `wait`. OSError when the program could not be started."""
        what, number = self._status[:2] if self._status else ("signal", str(int(signal.SIGKILL)))
        if what == "errno":
            raise OSError(int(number), os.strerror(int(number)))
        return -int(number) if what == "signal" else int(number)

    def _close(self) -> None:
        os.close(self._lifeline_fd)
        os.close(self._status_fd)


def _written(variables: Mapping[str, str]) -> int:
    """The variables as a file without a name: in arguments all users could read them, in a pipe they might not fit."""
    descriptor = os.memfd_create("variables")
    with open(descriptor, "wb", closefd=False) as file:
        file.writelines(os.fsencode(f"{name}={value}") + b"\0" for name, value in variables.items())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _follow(
    minder: subprocess.Popen[bytes], line: Callable[[str], None], tick: Callable[[], None], end_s: float | None
) -> None:
    """Until its output is closed; or it has exited, and one that left the group holds the output open."""
    assert minder.stdout is not None
    descriptor = minder.stdout.fileno()
    next_tick_s = time.monotonic()
    rest = b""
    while True:
        ready, _, _ = select.select([descriptor], [], [], _TICK_S)
        if ready:
            data = os.read(descriptor, _READ_BYTES)
            *whole, rest = (rest + data).replace(b"\r", b"\n").split(b"\n")
            for each in whole if data else [rest]:
                if each.strip():
                    line(each.decode("utf-8", "replace"))
            if not data:
                return
        elif minder.poll() is not None:
            return
        now_s = time.monotonic()
        if end_s is not None and now_s >= end_s:
            raise ChildTimeout
        if now_s >= next_tick_s:
            tick()
            next_tick_s = now_s + _TICK_S
