"""Why cells of a heat map are empty: a letter in the cell, and its meaning below the figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Final

_LETTERS: Final = ascii_lowercase[:11]
_ANOTHER: Final = "z"


@dataclass(frozen=True, slots=True)
class Footnotes:
    letters: Mapping[str, str]

    def letter(self, reason: str) -> str:
        return self.letters.get(reason, _ANOTHER)

    def lines(self) -> tuple[str, ...]:
        told = tuple(f"{letter}: {reason}" for reason, letter in self.letters.items())
        return (*told, f"{_ANOTHER}: another reason") if len(told) == len(_LETTERS) else told


def footnotes(reasons: Iterable[str]) -> Footnotes:
    """The commonest reasons get letters of their own."""
    common = [reason for reason, _ in Counter(reasons).most_common(len(_LETTERS))]
    return Footnotes(dict(zip(common, _LETTERS, strict=False)))
