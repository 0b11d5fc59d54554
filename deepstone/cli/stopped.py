"""Handles signals: one ends the process at once, or raises Stopped, so that workers end and files are closed.

It imports almost nothing, because signals are set up first.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # `typing` takes longer to import than all other modules here
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import NoReturn


class Stopped(BaseException):
    """Raised by a signal. `kept` says which results remain; commands that store something other than runs change it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number
        self.what = "interrupted" if number == signal.SIGINT else "terminated"
        self.kept = "runs already stored are kept"

    def leave(self) -> NoReturn:
        """Print the reason and end the process here. Keepers end the workers, as after any death of the controller."""
        try:  # noqa: SIM105  contextlib is not imported yet
            os.write(2, f"deepstone: {self.what}\n".encode())
        except OSError:  # standard error is closed
            pass
        os._exit(self.exit_code)


_raised: list[Stopped] = []


def on_signal(act: Callable[[int, FrameType | None], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as in processes that nohup or a script's `&` starts
            signal.signal(number, act)


def leave_at_once(number: int, _frame: FrameType | None) -> None:
    Stopped(number).leave()


def raise_stopped(number: int, _frame: FrameType | None) -> None:
    on_signal(leave_at_once)  # a second signal does not wait for the cleanup
    _raised.append(Stopped(number))
    raise _raised[0]


def raise_swallowed() -> None:
    """Raise a signal again that C code swallowed, as NumPy does when it looks for an attribute.

    Call it only when no cleanup is in progress.
    """
    if _raised:
        raise _raised[0]
