"""Runs venv, pip and debootstrap for an environment: logs their output, reports progress, reads their errors."""

from __future__ import annotations

import errno
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from deepstone.environments.places import Place, Progress
from deepstone.supervise import run_program

INSTALLED: Final = 0.95  # share of the work when the last package is installed
_BLOCK_BYTES: Final = 512
_LEAST_FREE_BYTES: Final = 2**16
_FULL: Final = {
    errno.ENOSPC: re.compile(r"no space left on device|errno 28\b", re.IGNORECASE),
    errno.EDQUOT: re.compile(r"disk quota exceeded|errno 122\b", re.IGNORECASE),
}

Stage: TypeAlias = tuple[str, str]  # the stage, and the package or file that it works on


class InstallerFailed(Exception):
    """The program failed; the message is its last error, else its last line, else its exit."""

    def __init__(self, output: Sequence[str], code: int) -> None:
        errors = [text.partition("ERROR:")[2] for text in output if text.lstrip().startswith("ERROR:")]
        last = " ".join((errors or list(output) or [""])[-1].split())
        how = f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
        super().__init__(last or how)
        self.output = output
        self.code = code


class Installer:
    """Installs into one place."""

    def __init__(self, place: Place, log: BinaryIO, progress: Progress, *, room_bytes: int) -> None:
        self._place = place
        self._log = log
        self._progress = progress
        self._room_bytes = room_bytes
        self._stage: Stage = ("downloading", "")
        self._share = 0.0
        self._next_size_check_s = 0.0

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        stage_of: Callable[[str], Stage | None] = lambda _: None,
        shown: str = "",
        timeout_s: float = math.inf,
    ) -> None:
        """Run one program to its end. Raises InstallerFailed, OSError for a full disk, or ProcessTimeout.

        `stage_of` reads a stage from a line of output; `shown` replaces the command in the log.
        """
        output: list[str] = []

        def on_line(text: str) -> None:
            output.append(text)
            self.log(text)
            stage = stage_of(text)
            if stage is not None:
                self.report(stage)

        self.log(f"$ {shown or ' '.join(argv)}")
        code = run_program(argv, env=env, cwd=cwd, on_line=on_line, on_tick=self._tick, timeout_s=timeout_s)
        if code != 0:
            raise full_disk(output) or self._full_disk() or InstallerFailed(output, code)

    def log(self, text: str) -> None:
        self._log.write(text.encode("utf-8", "replace") + b"\n")
        self._log.flush()

    def report(self, stage: Stage) -> None:
        self._stage = stage
        self._progress.stage(*stage, self._share)

    def _full_disk(self) -> OSError | None:
        """Check for a full disk: `python -m venv` only says that pip failed."""
        is_full = shutil.disk_usage(self._place.folder).free < _LEAST_FREE_BYTES
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if is_full else None

    def _tick(self) -> None:
        """Estimate progress from the size of the folder."""
        now_s = time.monotonic()
        if now_s >= self._next_size_check_s:
            done = min(1.0, used_bytes(self._place.folder) / self._room_bytes)
            self._share = max(self._share, done * INSTALLED)
            # Reading the size of many thousand files takes time from pip.
            self._next_size_check_s = now_s + 10 * (time.monotonic() - now_s)
        self.report(self._stage)


def full_disk(output: Sequence[str]) -> OSError | None:
    """Return the system's error if the output shows that the disk was full."""
    for number, pattern in _FULL.items():
        if any(pattern.search(text) for text in output):
            return OSError(number, os.strerror(number))
    return None


def used_bytes(folder: Path) -> int:
    """Return the disk usage of a folder. Files may appear and vanish meanwhile."""
    total = 0
    folders = [str(folder)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except FileNotFoundError:
            continue
    return total
