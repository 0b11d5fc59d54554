"""The one tree of errors. Each message says what was wrong, where, and what to do; each class knows its exit code."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches
from typing import ClassVar, Final

_NAMES_SHOWN: Final = 30
_LEAST_BEGINNING: Final = 3  # characters of a name by which one may mean it
_AS_NEAR: Final = 0.2  # in similarity: a name that is further from the nearest one is not proposed beside it
# Remedies for errors of the operating system.
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
    errno.EMFILE: "allow more open files, as with `ulimit -n 1024`",
    errno.ENFILE: "close other programs: the whole system has no more",
}
_NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)


class DeepstoneError(Exception):
    """Anything a user can cause. The command line prints the message and exits with `exit_code`."""

    exit_code: ClassVar[int] = 1


class UsageError(DeepstoneError):
    """A name, value or file the user gave is not acceptable."""

    exit_code = 2


class GraphError(UsageError):
    """A layer graph is malformed; the message names the layer."""


class RefusedInputError(UsageError):
    """A file offered for import is not a record we would have written."""


class InternalError(DeepstoneError):
    """A fault of Deepstone itself; the message says where everything measured is saved."""


class LeftToOtherError(DeepstoneError):
    """Another copy of Deepstone does what was asked for, so this one has nothing to do. No failure."""

    exit_code = 0


class BusyMachineError(DeepstoneError):
    """Others kept using the machine for as long as the user wanted to wait, so nothing was measured."""


class StoreError(DeepstoneError):
    """The store cannot be read or written."""

    exit_code = 3


class MissingError(DeepstoneError):
    """A framework, device or launcher is not there; the message says how to get it."""

    exit_code = 4


def shown(text: str) -> str:
    """Format a user's input for a message of one line: escape control characters."""
    return text if text.isprintable() else repr(text)


def nearest(word: str, known: Iterable[str]) -> str:
    """The tail of an unknown-name message: the nearest known names, or the first of them all when none is near. Names
    that begin with the word come first."""
    names = sorted(known)
    if close := close_names(word, names):
        return "did you mean " + " or ".join(close) + "?"
    shown = names[:_NAMES_SHOWN]
    return "known: " + ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


def close_names(word: str, known: Iterable[str]) -> list[str]:
    """At most three names that the word may have meant, the likeliest first."""
    names = sorted(known)
    begun = [name for name in names if len(word) >= _LEAST_BEGINNING and name.startswith(word.lower())]
    return list(dict.fromkeys([*begun, *_close(word.lower(), names)]))[:3]


def _close(word: str, names: Sequence[str]) -> list[str]:
    """Those that are near, without those that are much further than the nearest."""
    found = get_close_matches(word, names, n=3, cutoff=0.5)
    least = SequenceMatcher(None, word, found[0]).ratio() - _AS_NEAR if found else 0.0
    return [name for name in found if SequenceMatcher(None, word, name).ratio() >= least]


def reason(error: OSError) -> str:
    """Why the operating system refused, in its own words."""
    return (error.strerror or str(error)).lower()


def remedy(error: OSError, elsewhere: str) -> str:
    """Return the remedy; `elsewhere` says how to name another place."""
    return _REMEDIES.get(error.errno or 0, "see to it, or {elsewhere}").format(elsewhere=elsewhere)


def out_of_descriptors(error: Exception) -> bool:
    """Whether this process may open no more files. A failed import reports this only in its message."""
    if isinstance(error, OSError) and error.errno in _NO_DESCRIPTORS:
        return True
    return isinstance(error, ImportError) and os.strerror(errno.EMFILE) in str(error)
