"""Why a program gave up, from what it said."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from typing import Final

_FULL: Final = {
    errno.ENOSPC: re.compile(r"no space left on device|errno 28\b", re.IGNORECASE),
    errno.EDQUOT: re.compile(r"disk quota exceeded|errno 122\b", re.IGNORECASE),
}


def full_disk(said: Sequence[str]) -> OSError | None:
    """The error that the system gave it, if that was for lack of room."""
    for number, pattern in _FULL.items():
        if any(pattern.search(text) for text in said):
            return OSError(number, os.strerror(number))
    return None


def last_word(said: Sequence[str], code: int) -> str:
    """The last line that it called an error, else its last line, else how it ended."""
    errors = [text.partition("ERROR:")[2] for text in said if text.lstrip().startswith("ERROR:")]
    last = " ".join((errors or list(said) or [""])[-1].split())
    return last or (f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}")
