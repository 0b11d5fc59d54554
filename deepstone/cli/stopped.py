"""A signal, as an exception: so that workers are ended and files are closed on the way out."""

from __future__ import annotations

import signal


class Stopped(BaseException):
    """`kept` says what the work done so far has come to; a command that keeps something else than runs changes it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number
        self.what = "interrupted" if number == signal.SIGINT else "terminated"
        self.kept = "runs already stored are kept"
