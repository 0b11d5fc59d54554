"""The one tree of errors. Each message says what was wrong, where, and what to do; each class knows its exit code."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar

_NAMES_SHOWN = 30


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


class StoreError(DeepstoneError):
    """The store cannot be read or written."""

    exit_code = 3


class MissingError(DeepstoneError):
    """A framework, device or launcher is not there; the message says how to get it."""

    exit_code = 4


def shown(text: str) -> str:
    """What a user gave, as it can stand in a message of one line: with its control characters spelt out."""
    return text if text.isprintable() else repr(text)


def nearest(word: str, known: Iterable[str]) -> str:
    """The tail of an unknown-name message: the nearest known names, or the first of them all when none is near."""
    names = sorted(known)
    close = get_close_matches(word.lower(), names, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(close) + "?"
    shown = names[:_NAMES_SHOWN]
    return "known: " + ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")
