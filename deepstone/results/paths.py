"""Finding paths in text: absolute ones, those below a home folder, and what follows the scheme of a URL."""

from __future__ import annotations

import re
from typing import Final

PATH: Final = "<path>"
PATH_CHARACTER: Final = r"""[^\s"'`,;:()\[\]{}<>|]"""

_START: Final = r"(?:~[\w.-]*/|/+(?=[\w.~@$+-])|[A-Za-z]:\\)"
# A slash inside a word ("images/s") begins no path, but one right after a compiler's flag ("-I/usr/include") does.
_BARE = re.compile(rf"(?:(?<![\w.<~])|(?<=[\s=,]-[A-Za-z])|(?<=^-[A-Za-z])){_START}{PATH_CHARACTER}*")
_QUOTED = re.compile(rf"""(["']){_START}[^"'\n]*\1""")
_ARGUMENT = re.compile(r"(^|=)[^=]*[/\\].*", re.DOTALL)


def holds_path(text: str) -> bool:
    return bool(_BARE.search(text) or _QUOTED.search(text))


def without_argument_path(text: str) -> str:
    """One item of a command: with a slash in it, it is a path, relative or not, and reaches to its end."""
    return _ARGUMENT.sub(rf"\1{PATH}", text)


def without_quoted_paths(text: str) -> str:
    """Paths in quotes may hold spaces, so they go first."""
    return _QUOTED.sub(rf"\1{PATH}\1", text)


def without_bare_paths(text: str) -> str:
    return _BARE.sub(PATH, text)
