"""What the operating system refuses, as one line that says what to do."""

from __future__ import annotations

import errno
from typing import Final

_REMEDIES: Final = {
    errno.ENOSPC: "make room, or {elsewhere}",
    errno.EDQUOT: "make room in your quota, or {elsewhere}",
    errno.EROFS: "{elsewhere}",
    errno.EACCES: "change its permissions, or {elsewhere}",
    errno.EPERM: "change its permissions, or {elsewhere}",
    errno.EIO: "the disk itself failed: save what it holds, and {elsewhere}",
    errno.ENOTDIR: "it is a file and not a folder: {elsewhere}",
    errno.EEXIST: "it is a file and not a folder: {elsewhere}",
    errno.ENAMETOOLONG: "{elsewhere}",
}


def reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def remedy(error: OSError, elsewhere: str) -> str:
    """What to do; `elsewhere` is how to name another place."""
    return _REMEDIES.get(error.errno or 0, "see to it, or {elsewhere}").format(elsewhere=elsewhere)
