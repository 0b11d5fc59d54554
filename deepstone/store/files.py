"""Atomic files, complete or absent whenever the process or machine stops; locks that end with their process; and the
owner of a file, so that files of dead processes can be removed."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from msgspec import Struct

from deepstone.durable import sync_folder

_NO_HARD_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK, errno.ENOSYS}
_LOCK_POLL_S: Final = 0.02
_OWNER = re.compile(r"([0-9]{1,10})\.([0-9]{1,20})\.([0-9a-f-]{36})(?:@([A-Za-z0-9-]{1,64}))?")


class Owner(Struct, frozen=True, kw_only=True):
    """A unique process: a pid is used again, but not with the same start time in the same boot.

    On a shared file system it may run on another host, where we cannot look for it: it counts as alive. An owner of
    another boot is gone only if its host is ours, which was then started anew. Earlier texts have no host.
    """

    pid: int
    started_ticks: int
    boot: str
    host: str = ""

    @staticmethod
    def myself() -> Owner:
        pid = os.getpid()
        started = _started_ticks(pid)
        assert started is not None, "this process is alive"
        return Owner(pid=pid, started_ticks=started, boot=_boot(), host=_host())

    @staticmethod
    def parse(text: str) -> Owner | None:
        """Return the owner that wrote this text; None if it is not an owner's text."""
        match = _OWNER.fullmatch(text)
        return match and Owner(pid=int(match[1]), started_ticks=int(match[2]), boot=match[3], host=match[4] or "")

    @property
    def text(self) -> str:
        return f"{self.pid}.{self.started_ticks}.{self.boot}" + (f"@{self.host}" if self.host else "")

    @property
    def is_elsewhere(self) -> bool:
        return self.host not in ("", _host())

    def is_gone(self) -> bool:
        if self.boot != _boot():
            return self.host in ("", _host())
        return _started_ticks(self.pid) != self.started_ticks


def _host() -> str:
    """As a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:64]


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _started_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it has ended or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *rest = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(rest[18])


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raises OSError at once for anything else, such as a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def publish(data: bytes, target: Path, *, tmp: Path) -> bool:
    """Write a complete, durable file; return False if the name is taken. Never overwrites."""
    with temporary(data, folder=tmp) as temp:
        taken = link_exclusively(temp, target)
        if taken is None:  # the caller's claim keeps others away between the check and the renaming
            taken = not target.exists()
            if taken:
                temp.rename(target)
    if taken:
        sync_folder(target.parent)
    return taken


def replace_file(data: bytes, target: Path, *, tmp: Path) -> None:
    """Write a complete, durable file over an existing one. Of several writers the last one wins."""
    with temporary(data, folder=tmp) as temp:
        temp.replace(target)
    sync_folder(target.parent)


def link_exclusively(temp: Path, target: Path) -> bool | None:
    """Give a complete file its name, unless that is taken. Return None if the file system has no hard links."""
    try:
        target.hardlink_to(temp)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno in _NO_HARD_LINKS:
            return None
        raise
    return True


@contextmanager
def temporary(data: bytes, *, folder: Path, durable: bool = True) -> Generator[Path]:
    """Write a file that is removed afterwards. Its name contains its owner, in case we are killed."""
    path = folder / f"{Owner.myself().text}.{secrets.token_hex(6)}.tmp"
    try:
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        yield path
    finally:
        path.unlink(missing_ok=True)


def remove_abandoned(folder: Path) -> None:
    """Remove temporary files whose owners have ended."""
    # In a missing or read-only folder there is nothing to remove.
    with suppress(OSError):
        for path in folder.glob("*.tmp"):
            owner = Owner.parse(path.name.removesuffix(".tmp").rpartition(".")[0])
            if owner and owner.is_gone():
                path.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, *, wait_s: float) -> Generator[bool]:
    """Hold a lock that ends with the process; yield False if it cannot be acquired in time."""
    try:
        file = path.open("ab")
    except OSError:
        yield False
        return
    with file:
        yield _lock(file.fileno(), wait_s)


def _lock(descriptor: int, wait_s: float) -> bool:
    end_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end_s:
                return False
            time.sleep(_LOCK_POLL_S)
        except OSError:  # a file system without locks
            return False
        else:
            return True
