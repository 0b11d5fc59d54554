"""Finds the line of each key and list entry in a TOML file, because `tomllib` returns values without their lines.

The text is valid TOML, since `tomllib` has read it; so this scanner only searches for starts and ends.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final, TypeAlias

Place: TypeAlias = tuple[str | int, ...]  # ("jobs", 0, "batch", 2): the third batch of the first [[jobs]]

_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR: Final = re.compile(r"[^,\]}#\n]*")
# The longest quotes first: a multi-line string starts with what looks like an empty string.
_STRINGS: Final = (
    re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}', re.DOTALL),
    re.compile(r"'''.*?'{3,5}", re.DOTALL),
    re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    re.compile(r"'[^'\n]*'"),
)


def places(text: str) -> dict[Place, int]:
    """Return the line, from 1, of every key, table and list entry."""
    return _Scanner(text.replace("\r\n", "\n")).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._ends = [place for place, character in enumerate(text) if character == "\n"]
        self._lines: dict[Place, int] = {}
        self._lengths: dict[Place, int] = {}  # of arrays of tables, so far

    def scan(self) -> dict[Place, int]:
        table: Place = ()
        while self._skip():
            if self._take("[["):
                table = self._header(array=True)
            elif self._take("["):
                table = self._header(array=False)
            else:
                self._pair(table)
        return self._lines

    def _header(self, *, array: bool) -> Place:
        line = self._line
        place: Place = ()
        *parents, last = self._key()
        for part in parents:
            place = self._entered((*place, part), line)
        place = (*place, last)
        if array:
            self._lengths[place] = self._lengths.get(place, 0) + 1
        place = self._entered(place, line)
        self._take("]]" if array else "]")
        return place

    def _entered(self, place: Place, line: int) -> Place:
        """Enter the last table if this is an array of tables."""
        self._lines.setdefault(place, line)
        if place in self._lengths:
            place = (*place, self._lengths[place] - 1)
            self._lines.setdefault(place, line)
        return place

    def _pair(self, table: Place) -> None:
        line = self._line
        place = table
        for part in self._key():
            place = (*place, part)
            self._lines.setdefault(place, line)
        self._take("=")
        self._value(place)

    def _key(self) -> list[str]:
        parts: list[str] = []
        while True:
            self._skip()
            bare = _BARE.match(self._text, self._at)
            if bare:
                self._at = bare.end()
                parts.append(bare[0])
            else:
                parts.append(self._string()[1:-1])
            if not self._take("."):
                return parts

    def _value(self, place: Place) -> None:
        self._skip()
        self._lines.setdefault(place, self._line)
        if self._take("["):
            self._list(place)
        elif self._take("{"):
            while self._skip() and not self._take("}"):
                self._pair(place)
                self._take(",")
        elif self._text[self._at : self._at + 1] in ('"', "'"):
            self._string()
        else:
            self._at = self._matched(_SCALAR)

    def _list(self, place: Place) -> None:
        number = 0
        while self._skip() and not self._take("]"):
            self._value((*place, number))
            self._take(",")
            number += 1

    def _string(self) -> str:
        for pattern in _STRINGS:
            match = pattern.match(self._text, self._at)
            if match:
                self._at = match.end()
                return match[0]
        raise AssertionError(f"no key or text at line {self._line}, though the file is TOML")

    def _skip(self) -> bool:
        """Skip blanks and comments; return whether anything is left."""
        self._at = self._matched(_BLANK)
        return self._at < len(self._text)

    def _take(self, sign: str) -> bool:
        self._skip()
        if not self._text.startswith(sign, self._at):
            return False
        self._at += len(sign)
        return True

    def _matched(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self._text, self._at)
        assert match is not None, "both patterns match nothing as well"
        return match.end()

    @property
    def _line(self) -> int:
        return bisect_right(self._ends, self._at - 1) + 1
