"""Finds paths in text: absolute ones, those below a home folder, and those in URLs."""

from __future__ import annotations

import re
from typing import Final

PATH: Final = "<path>"
PATH_CHARACTER: Final = r"""[^\s"'`,;:()\[\]{}<>|]"""

_START: Final = r"(?:~[\w.-]*/|/+(?=[\w.~@$+-])|[A-Za-z]:\\)"
# A slash inside a word ("images/s") does not start a path, but one after a compiler's flag ("-I/usr/include") does.
_BARE = re.compile(rf"(?:(?<![\w.<~])|(?<=[\s=,]-[A-Za-z])|(?<=^-[A-Za-z])){_START}{PATH_CHARACTER}*")
_QUOTED = re.compile(rf"""(["']){_START}[^"'\n]*\1""")
_PER = re.compile(r"\w+=\d+/(process|node)")  # a value of an axis, and no path
_ARGUMENT = re.compile(r"(^|=)[^=]*[/\\].*", re.DOTALL)


def holds_path(text: str) -> bool:
    return bool(_BARE.search(text) or _QUOTED.search(text))


def without_argument_path(text: str) -> str:
    """Redact one item of a command: if it contains a slash, it is a path up to its end, relative or not."""
    return text if _PER.fullmatch(text) else _ARGUMENT.sub(rf"\1{PATH}", text)


def without_quoted_paths(text: str) -> str:
    """Redact paths in quotes first, since they may contain spaces."""
    return _QUOTED.sub(rf"\1{PATH}\1", text)


def without_bare_paths(text: str) -> str:
    return _BARE.sub(PATH, text)
