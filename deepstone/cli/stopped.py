"""What a signal does: it ends us at once, or it is raised, so that workers are ended and files closed on the way out.

Imports next to nothing: signals are seen to before anything else.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # `typing` itself takes longer to import than all else here
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import NoReturn


class Stopped(BaseException):
    """`kept` says what the work done so far has come to; a command that keeps something else than runs changes it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number
        self.what = "interrupted" if number == signal.SIGINT else "terminated"
        self.kept = "runs already stored are kept"

    def leave(self) -> NoReturn:
        """Says so and ends the process here; keepers see to the workers, as after any death of ours."""
        try:  # noqa: SIM105  contextlib is not imported yet
            os.write(2, f"deepstone: {self.what}\n".encode())
        except OSError:  # standard error is closed
            pass
        os._exit(self.exit_code)


_raised: list[Stopped] = []


def on_signal(act: Callable[[int, FrameType | None], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as it is for what nohup or a script's `&` starts
            signal.signal(number, act)


def leave_at_once(number: int, _frame: FrameType | None) -> None:
    Stopped(number).leave()


def raise_stopped(number: int, _frame: FrameType | None) -> None:
    on_signal(leave_at_once)  # who asks a second time does not wait for the cleaning up
    _raised.append(Stopped(number))
    raise _raised[0]


def raise_swallowed() -> None:
    """Raises a signal again that was raised where C code drops what is raised, as when NumPy looks for an attribute.

    For moments at which nobody cleans up.
    """
    if _raised:
        raise _raised[0]
