"""Which process made a file, so that what the dead left behind can be told from what the living still need."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_STAMP = re.compile(r"([0-9]{1,10})\.([0-9]{1,20})\.([0-9a-f-]{36})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """A process for good: a pid comes round again, but not with the same start time in the same boot."""

    pid: int
    started_ticks: int
    boot: str

    @staticmethod
    def myself() -> Owner:
        pid = os.getpid()
        started = _started_ticks(pid)
        assert started is not None, "this process is alive"
        return Owner(pid=pid, started_ticks=started, boot=_boot())

    @staticmethod
    def parse(text: str) -> Owner | None:
        """The owner that wrote this stamp; None when the text is none."""
        match = _STAMP.fullmatch(text)
        return match and Owner(pid=int(match[1]), started_ticks=int(match[2]), boot=match[3])

    @property
    def stamp(self) -> str:
        return f"{self.pid}.{self.started_ticks}.{self.boot}"

    def is_gone(self) -> bool:
        return self.boot != _boot() or _started_ticks(self.pid) != self.started_ticks


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _started_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when it is gone, or a zombie about to be."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *rest = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(rest[18])
