"""Everything that is wrong with a file, told at once and in one line."""

from __future__ import annotations

from collections.abc import Sequence

from deepstone.errors import GraphError, shown

_MOST_TOLD = 25
_MOST_KEPT = 1000


class Complaints:
    """What is wrong with a file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._lines: set[tuple[int, str]] = set()
        self._types: dict[str, list[int]] = {}

    @property
    def enough(self) -> bool:
        """Whether there are more than anybody will read."""
        return len(self._lines) >= _MOST_KEPT

    def add(self, line: int, what: str) -> None:
        if not self.enough:
            self._lines.add((line, what))

    def add_type(self, line: int, name: str) -> None:
        """A layer type that we do not have."""
        self._types.setdefault(name, []).append(line)

    def raise_if_any(self) -> None:
        told = [f"line {line}: {what}" for line, what in sorted(self._lines)]
        if self._types:
            types = [f"{shown(name)} ({_lines(lines)})" for name, lines in self._types.items()]
            told.insert(0, f"layer types that Deepstone does not have: {', '.join(_first(types))}")
        if told:
            separator = ", " if len(told) == 1 and not self._types else ": "
            raise GraphError(f"{self.file}{separator}{'; '.join(_first(told))}")


def _lines(lines: Sequence[int]) -> str:
    word = "line" if len(lines) == 1 else "lines"
    return f"{word} {', '.join(_first([str(line) for line in lines]))}"


def _first(items: Sequence[str]) -> list[str]:
    """As many as a person reads."""
    left = len(items) - _MOST_TOLD
    return [*items[:_MOST_TOLD], *([f"and {left} more"] if left > 0 else [])]
