"""Entry point of the `deepstone` command. It sets up signals before it imports anything large.

import ─ main() ── import the commands ──▶ run the command line ──▶ leave
         │◀─ a signal ends us at once ─▶│◀─ a signal is raised ─▶│◀─ at once ─▶
"""

from __future__ import annotations

import gc
import os
import sys

from deepstone.cli.stopped import Stopped, leave_at_once, on_signal

# A command makes a hundred thousand objects while it imports, and hardly any becomes garbage.
_OBJECTS_PER_COLLECTION = 20_000
_SPINNING = "OPENBLAS_THREAD_TIMEOUT"

TYPE_CHECKING = False  # `typing` takes longer to import than all other modules here
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any


def main() -> None:
    on_signal(leave_at_once)
    sys.excepthook, sys.unraisablehook = _uncaught, _unraisable
    _open_streams()
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    _let_idle_threads_sleep()
    from deepstone.cli.commands import run_command_line

    code = run_command_line()
    on_signal(leave_at_once)
    sys.exit(code)


def _let_idle_threads_sleep() -> None:
    """OpenBLAS starts a thread for every core when NumPy is imported, and each spins for 2**26 cycles before it sleeps:
    some 25 ms of CPU time per core, also while a worker starts. Here they sleep after 2**4.

    This changes what C code of this process reads, not `os.environ`: workers get the variables of the user.
    """
    if _SPINNING not in os.environ:
        os.putenv(_SPINNING, "4")


def _uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Handle Stopped where no code catches it: between two of our lines, or while C code imports a module."""
    if isinstance(error, Stopped):
        error.leave()
    sys.__excepthook__(kind, error, traceback)


def _unraisable(found: Any) -> None:
    """Handle Stopped raised during garbage collection, where Python would print a traceback and go on."""
    if isinstance(found.exc_value, Stopped):
        found.exc_value.leave()
    sys.__unraisablehook__(found)


def _open_streams() -> None:
    """Make both streams accept any character, in any locale, and open them if the caller closed them."""
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115  for as long as we run
        else:
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    main()
